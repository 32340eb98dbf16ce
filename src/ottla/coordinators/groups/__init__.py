"""Groups of every kind and their committed offsets, kept in ``__consumer_offsets``.

Pure rules, one file per subject; `machine.py` is the state machine of one shard, `service.py`
what the wire talks to. Start reading at `kinds.py` (what a group of any kind must answer),
then `classic_group.py` and `offsets.py`. Consumer groups (KIP-848): `consumer_group.py`, then
`consumer_records.py` (how records change one), `consumer_heartbeat.py` and `consumer_reconcile.py`.
"""
