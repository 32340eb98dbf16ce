"""Formats of records: batches as columns; Avro, JSON and Protobuf; the schema registry.

`batch_decoder.py` and `batch_encoder.py` are compiled and turn record batches into columns and
back; `arrow_batches.py` makes Arrow of them. A key or value is decoded by a class with ``columns``
and ``decode`` (`avro_values.py`, `protobuf_values.py`, `registry_values.py`) and encoded by
`registry_writer.py` and `protobuf_writer.py`. `registry_client.py` is the client of schema
registries. Nothing here knows Spark, DuckDB or the command line, which all use it. The libraries of
the formats are extras: a module that needs one is imported by those that use it.
"""
