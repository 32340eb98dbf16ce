"""Interfaces to the environment: clock, randomness, disk, network, object store.

Not here: any rule of Kafka. Start reading at `ports.py`; the real implementations are
beside it, the simulated ones in `simulation`, outside the product.
"""
