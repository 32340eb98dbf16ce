"""The rules of the quorum, events in and effects out: roles, votes, replication, membership.

Not here: sockets, files, clocks, and the layout of messages and batches. Start reading at
`machine.py`; the vocabulary is in `events.py`, `effects.py` and `messages.py`, and docs/raft.md
explains how the parts work together.
"""
