"""Record batches, message format 2: what clients send, logs keep and consumers get.

Not here: whether a batch is welcome (`storage`, `replication`); the fields inside KRaft's
control records (`internal`). Start reading at `batch.py` for the header that the hot path
touches, then `walker.py` for the records inside, `reader.py` and `writer.py` for people and
tests, `compression.py` for what a batch may be packed with.
"""
