"""Metrics of a node: counters, gauges, pages, and their export."""
