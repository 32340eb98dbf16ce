"""Leaders and followers: the partitions a node hosts, their ISR, high watermark and fetchers.

Not here: bytes on disk (`storage`), who is to lead (`controller`), who may ask (`api`). Start
reading at `partition.py`; the pure rules are in `isr_state.py`, `high_watermark.py` and
`follower_progress.py`, and `replicas.py` brings partitions in step with the image.
"""
