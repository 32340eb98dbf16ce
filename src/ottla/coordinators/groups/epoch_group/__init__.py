"""What groups with epochs share (consumer, streams and share groups).

Every group is an immutable value that only records change (`records.py`). A decision writes
records into a draft (`draft.py`), which applies each one as replay will. `kind.py` registers the
records and timers of one kind with the state machine of a shard.
"""
