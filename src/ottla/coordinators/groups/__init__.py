"""Groups of every kind and their committed offsets, kept in ``__consumer_offsets``.

Pure rules, one folder per kind of group: `classic/`, `consumer/` (KIP-848), `streams/` (KIP-1071)
and `share/` (KIP-932); `offsets/` holds the committed offsets. `machine.py` is the state machine of
one shard and `service.py` the entry point of requests. Start reading at `kind.py` (the interface of
every kind of group), then `classic/group.py` and `offsets/committed.py`. For consumer groups read
`consumer/group.py`, then `records.py` (how records change a group), `heartbeat.py` and
`reconcile.py`.
"""
