"""One table of Kafka's configuration keys, and typed settings made from it.

Not here: what a setting does, and reading files. Start reading at `keys.py` for the table,
at `settings.py` for how a node's configuration is loaded, at `layers.py` for which value counts.
"""
