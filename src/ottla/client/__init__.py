"""The small async Kafka client between brokers and under the tools.

What is here: connections (`connection.py`), a cluster as a client sees it (`cluster.py`), and on
top of that `producer.py`, `consumer.py`, `offsets.py` and `admin.py`. Rules stand on their own:
`partitioner.py`, `accumulator.py`, `fetched.py`, `offset_spec.py`, `backoff.py`.

Not here: groups and transactions of a user; use a Kafka client library for those. Start reading at
`cluster.py`.
"""
