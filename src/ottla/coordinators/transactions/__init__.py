"""Transactions over partitions and committed offsets, kept in ``__transaction_state``.

Start reading at `transaction.py` (one transactional id and how it may change), then `rules.py`
(what is decided about each request) and `machine.py` (one shard of ids). `markers.py` tells the
partitions of a transaction how it ended, `marker_writer.py` is the other end of that; `service.py`
is what the wire talks to.
"""
