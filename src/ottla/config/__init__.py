"""One table of Kafka's configuration keys, and typed settings made from it.

Not here: what a setting does, and reading files. Start reading at `key_table.py` for the table,
at `loading.py` for how a node's configuration is loaded, at `layers.py` for which value counts.
"""
