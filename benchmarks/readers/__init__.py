"""Readers of official releases: one module each, release quirks live only there."""
