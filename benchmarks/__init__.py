"""Benchmarks: records, readers of official releases, preparation and the synthetic phantom."""
