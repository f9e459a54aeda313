"""Benchmarks of speed and memory, each against a named baseline in the same run."""
