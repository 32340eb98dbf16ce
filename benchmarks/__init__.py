"""Benchmarks that compare inside one run and print ratios; `python -m benchmarks`."""
