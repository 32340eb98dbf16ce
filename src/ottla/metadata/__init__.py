"""The cluster's state: the immutable image, metadata records, deltas, publishing, snapshots.

Here: the image that a prefix of the metadata log results in (`image.py`), the meaning of each
record (`replay.py` and its neighbours), what a batch of records changed (`delta.py`), the order in
which parts of the node are notified (`publishing.py`), and the image as records
(`snapshot_records.py`). Not here: where the records come from (`raft`) and which ones to write
(`controller`).

Start reading at `image.py`, then `replay.py`.
"""
