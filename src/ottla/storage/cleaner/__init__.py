"""Compaction: which records of a log are removed, and the rewriting of segments."""
