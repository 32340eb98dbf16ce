"""The state of share partitions, kept in ``__share_group_state`` (KIP-932).

Start reading at `state.py` (the stored state of one share partition), then `machine.py` (one shard
of them) and `rules.py` (the decision about each request). `service.py` serves the requests; leaders
of partitions and the group coordinator use `persister.py`, wherever the shard is.
"""
