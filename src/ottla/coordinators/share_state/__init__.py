"""The state of share partitions, kept in ``__share_group_state`` (KIP-932).

Start reading at `state.py` (one share partition as it is kept), then `machine.py` (one shard of
them) and `rules.py` (what is decided about each request); `service.py` is what the wire talks to,
`persister.py` what the leaders of partitions and the group coordinator do, wherever the shard is.
"""
