"""One partition's log: segments, indexes, producers, recovery, appends and reads."""
