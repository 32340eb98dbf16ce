"""Ottla: an Apache Kafka-compatible broker in Python.

The rooms of this package and who may know whom are drawn in ARCHITECTURE.md.
"""

__version__ = "0.1.0.dev0"
