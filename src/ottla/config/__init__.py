"""One table of Kafka's configuration keys, and typed settings made from it.

Not here: what a setting does. Start reading at `keys.py`.
"""
