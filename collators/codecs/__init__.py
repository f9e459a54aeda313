"""Codecs: pure functions between answers and text, without torch."""
