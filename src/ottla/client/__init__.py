"""The small async Kafka client that brokers and command-line tools use.

Contents: connections (`connection.py`), a cluster from a client's view (`cluster.py`), and on top
of these `producer.py`, `consumer.py`, `offsets.py` and `admin.py`. Pure rules: `partitioner.py`,
`accumulator.py`, `fetched.py`, `offset_spec.py`, `backoff.py`; and those that the blocking client
shares (`blocking/`): `metadata.py`, `lookups.py`, `negotiation.py`, `requests.py`, `failures.py`.

Not here: consumer groups and transactions of applications; use a Kafka client library for those.
Start reading at `cluster.py`.
"""
