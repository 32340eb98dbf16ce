"""Record batches of message format 2: produced by clients, stored in logs, fetched by consumers.

Validation of batches is in `storage` and `replication`; the values of KRaft's control records are
in `internal`. Start reading at `batch.py` for the header, which the hot path reads, then
`walker.py` for the records, `reader.py` and `writer.py` for tools and tests, and `compression.py`
for codecs.
"""
