"""The table of Kafka's configuration keys, and typed settings derived from it.

Not here: the effect of a setting, and reading files. Start reading at `key_table.py` for the table,
at `loading.py` for how a node's configuration is loaded, and at `layers.py` for precedence.
"""
