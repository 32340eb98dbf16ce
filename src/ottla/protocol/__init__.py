"""Kafka's language, without I/O: messages, codec, frames, record batches, error codes.

Not here: who may say what (`api`), how bytes arrive (`server`), where batches rest
(`storage`). Start reading at `types.py` and `errors.py`, then `schema.py` for how a
message is declared, `codec/` for how it becomes bytes and `records/` for batches.
"""
