"""Groups, transactions and share state: replicated state machines on internal topics.

A shard is one partition of an internal topic: pure rules decide against its state, the records
they ask for are appended, replayed into the state at once, and the reply leaves when they are
committed. Not here: the partitions themselves (`replication`) and the wire (`api`).

Start reading at `decision.py` (what a state machine is), then `shard.py` (how one is run) and
`runtime.py` (all shards of a topic). `groups` is the first state machine.
"""
