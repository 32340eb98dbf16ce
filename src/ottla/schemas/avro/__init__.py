"""Avro schemas: names and references, canonical text, and Avro's reader and writer resolution.

Start reading at `schema.py`. The rules are those of the Avro specification 1.12; names of
differences and paths are those of Avro's Java library, which Confluent's registry prints.
"""
