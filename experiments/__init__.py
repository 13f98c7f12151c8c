"""Experiments and benchmarks: the public API only."""
