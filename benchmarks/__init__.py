"""Benchmarks that compare within one run and print ratios: `python -m benchmarks`."""
