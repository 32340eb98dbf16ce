"""Old segments in remote storage (KIP-405): copy, find, read, expire and delete them.

Pure rules: `segment_metadata.py` (the states of a remote segment), `metadata_cache.py` (which
segment holds an offset of an epoch), `lineage.py` (is a segment part of this log's history),
`copy_plan.py`, `remote_retention.py`, `metadata_records.py` (the bytes of
``__remote_log_metadata``).

Shells: `segment_store.py` (objects of a segment), `metadata_manager.py` and `metadata_topic.py`
(where the metadata is kept), `remote_log_manager.py` (the tasks of a broker; start there),
`remote_reads.py` (fetches and lookups below the local log start), `auxiliary_state.py` (a follower
that begins behind the tier).

An object is written only after the metadata that names it, and a local segment is deleted only
after the metadata says that all its objects are stored and verified. So a crash leaves metadata
without objects, which the next leader removes, and never the reverse.
"""
