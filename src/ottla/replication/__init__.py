"""Leaders and followers: the partitions a node hosts, their ISR, high watermark and fetchers.

Not here: bytes on disk (`storage`), elections (`controller`), requests and permissions (`api`).
Start with `partition.py` (one replica) and `replicas.py`, which brings the partitions in step with
the image; the pure rules are in `isr_state.py`, `high_watermark.py` and `follower_rules.py`.

One partition
    partition            a hosted replica: append, read, follow the image
    appending            the leader's append path (compiled)
    partition_host       what a partition needs of its node
    partition_reads      the request and result of a read
    leadership           the leader's state besides its log
    isr_state            the ISR and proposals to change it
    high_watermark       how far a partition is replicated
    follower_progress    how far one follower is
    waiters              callbacks for growth and for reached offsets
    event_wait           wait for an event or a timeout

The broker's partitions
    replicas             create, lead, follow and delete partitions as the image says
    hosted_partitions    the registry of hosted partitions
    host                 log directories and what partitions share
    log_settings         the settings of a log from those of its topic and broker
    isr_loop             send ISR proposals to the controller
    directory_reports    report the directories of replicas to the controller
    throttles            replication throttles

Following
    fetcher_loop         fetch from the leaders
    fetch_rounds         requests and responses of one fetcher, round after round
    fetch_session        the follower's side of a fetch session
    fetch_append         append the records of a response
    partial_fetch        find complete batches in a response that is still arriving
    follower             apply a leader's response to the log
    follower_rules       where to truncate, how much to fetch

Logs
    maintenance_loop     periodic retention, flushing and checkpoints
    cleaner_loop         compaction
    log_dir_moves        move partitions between log directories
    directory_work       take a directory offline when its disk fails
    disk_usage           bytes on disk by partition

Damage
    scrub_loop           check stored batches in the background
    repair_loop          repair damaged replicas
    repair_sources       which replicas to repair from
    recovery_losses      report what recovery could not keep
"""
