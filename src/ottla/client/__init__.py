"""The small async Kafka client between brokers and under the tools.

Not here: the producer and consumer of a user. Start reading at `connection.py`.
"""
