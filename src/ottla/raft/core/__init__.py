"""The rules of the quorum, events in and effects out: roles, votes, replication, membership.

Not here: sockets, files, clocks, the layout of a message or a batch. Start reading at
`machine.py`; the vocabulary is in `events.py`, `effects.py` and `messages.py`, and
docs/raft.md tells how the parts play together.
"""
