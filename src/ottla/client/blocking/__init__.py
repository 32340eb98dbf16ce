"""The blocking client of Spark's tasks and of SQL: the same requests, on threads instead of a loop.

`broker_client.py` has metadata, requests and connections; `range_fetch.py` reads the raw batches of
a range, `raw_producer.py` sends encoded batches, exactly once if it has a transactional id, and
`wire.py` is one connection. Requests and the rules of retries are those of `ottla.client`.
"""
