"""Kafka's wire protocol, without I/O: messages, codec, frames, record batches, error codes.

Not here: authorization (`api`), connections (`server`), stored batches (`storage`). Start at
`types.py` and `errors.py`, then `schema.py` for how a message is declared, `codec/` for how it is
encoded and `records/` for batches.
"""
