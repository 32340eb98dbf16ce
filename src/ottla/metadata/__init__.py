"""The cluster's state: metadata records, the immutable image, deltas, publishing, snapshots.

What is here: the image that a prefix of the metadata log amounts to (`image.py`), what each
record means (`replay.py` and its neighbours), what a batch of records changed (`delta.py`), in
which order the rest of the node hears of it (`publishing.py`), and the image as records again
(`snapshot_records.py`). What is not here: where the records come from (`raft`) and which ones to
write (`controller`).

Start reading at `image.py`, then `replay.py`.
"""
