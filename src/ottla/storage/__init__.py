"""Logs on disk: the files of one partition's log and of a log directory, identical to Kafka's.

Not here: leadership, replication and access control; `replication` decides who may append and
read. Start with `log.py` (one log) and `log_dir.py` (one directory of ``log.dirs``); the pure rules
are in `producer_state.py`, `leader_epochs.py`, `retention.py` and `compaction.py`.

One log
    log                      read, truncate, roll, flush
    log_appends              append as the leader, or what the leader sends
    log_losses               what a log has lost, and its repair
    log_tail                 the append path of a log (compiled)
    log_config               the settings of a log
    append                   checks before a batch is appended
    read                     find records by offset or timestamp
    log_recovery             open a log after a clean stop or a crash
    log_evidence             what is known of a log besides its segments
    inventory                ``segment-inventory``: what the log is known to hold
    kept_until               ``kept-until``: until when files below the log start are kept
    epoch_check              compare leader epochs with batches
    log_maintenance          delete old segments by retention
    retention                which segments to delete
    flushing                 which files to sync
    disk_health              a log fails for good after one disk error
    deleted_segments         segments whose files wait to be removed
    leader_epochs            which leader epoch wrote which offsets

Segments and their files
    segment                  a file of batches with its indexes
    segment_tail             the append path of a segment (compiled)
    segments                 the segments of a log in order
    scan                     iterate over the batches of a file
    files                    names of a log's files
    sparse_index             common part of the offset and time index
    offset_index             ``.index``
    time_index               ``.timeindex``
    transaction_index        ``.txnindex``

Producers
    producer_state           epochs, sequences and open transactions
    producer_replay          apply stored batches to the producer state
    producer_snapshots       when snapshots are taken, loaded and removed
    producer_snapshot_format the bytes of a ``.snapshot`` file

Log directories
    log_dir                  lock, owner, checkpoints and logs of a directory
    log_dir_checkpoints      write the checkpoints of a directory
    checkpoints              the format of checkpoint files
    clean_shutdown           ``.kafka_cleanshutdown``
    meta_properties          ``meta.properties``
    directory_data           whether a directory holds data of a node
    partition_metadata       ``partition.metadata``
    partition_names          names of partition directories
    log_move_steps           the next step of a move between directories

Compaction
    compaction               what may be removed, and which log is cleaned first
    log_cleaner              choose and clean the logs of a directory
    cleaner                  one cleaning round over one log
    batch_cleaner            clean one batch
    offset_map               newest offset of each key (compiled)
    record_filter            copy the records that are kept (compiled)

Damage
    scrub                    check stored batches
    scrub_plan               which log to scrub next
    scrub_spans              the parts of a log to scrub
    damaged_ranges           known damaged ranges, which are never sent
    range_restore            write batches of another replica in place of missing ones
    set_aside                keep damaged bytes for the operator
"""
