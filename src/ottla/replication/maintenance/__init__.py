"""Periodic work on logs: retention, compaction, flushing, moves between directories."""
