"""One partition's log on disk, byte for byte as Kafka keeps it.

Not here: who leads, who replicates, who may read. Start reading at `log.py`; the pure
rules are in `producer_state.py`, `leader_epochs.py` and `retention.py`.
"""
