"""Groups, transactions and share state: replicated state machines on internal topics.

A shard is one partition of an internal topic. Pure rules decide against its state; the records of a
decision are appended and replayed into the state at once, and the reply is sent when they are
committed. The partitions themselves are in `replication`, the wire protocol is in `api`.

Start reading at `decision.py` (what a state machine is), then `shard.py` (how one runs) and
`runtime.py` (all shards of a topic). `groups` has the first state machine.
"""
