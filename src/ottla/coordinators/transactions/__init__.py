"""Transactions over partitions and committed offsets, kept in ``__transaction_state``.

Start reading at `transaction.py` (one transactional id and its transitions), then `rules.py` (the
decision about each request) and `machine.py` (one shard of ids). `markers.py` sends the markers
that end a transaction to its partitions, `marker_writer.py` writes them; `service.py` serves the
requests.
"""
