"""Broker keys: logs on disk, retention, compaction and compression.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import Range, at_least, between, items, one_of, some_items
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY
PER_BROKER = Update.PER_BROKER
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
BROKER_LOG: tuple[Key, ...] = (
    Key("log.dirs", LIST, None, some_items(), HIGH, READ_ONLY,
        "The log directories; defaults to log.dir."),
    Key("log.dir", LIST, ("/tmp/kafka-logs",), some_items(), HIGH, READ_ONLY,  # noqa: S108
        "The log directory if log.dirs is not set."),
    Key("cordoned.log.dirs", LIST, (), items(), MEDIUM, PER_BROKER,
        "The log directories that get no new partitions; * for all. Needs metadata.version 4.3-IV0 "
        "to be altered."),
    Key("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "A broker that cannot report a failed log directory to the controller for this long "
        "stops."),
    Key("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH, CLUSTER_WIDE,
        "Roll a segment at this size."),
    Key("log.roll.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Roll a segment at this age; defaults to log.roll.hours."),
    Key("log.roll.hours", INT, 168, at_least(1), HIGH, READ_ONLY,
        "Roll a segment at this age, in hours."),
    Key("log.roll.jitter.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "The maximum random jitter subtracted from log.roll.ms; defaults to "
        "log.roll.jitter.hours."),
    Key("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, READ_ONLY,
        "The maximum random jitter subtracted from log.roll.hours, in hours."),
    Key("log.retention.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Delete segments older than this; -1 for no limit; defaults to log.retention.minutes."),
    Key("log.retention.minutes", INT, None, None, HIGH, READ_ONLY,
        "Delete segments older than this many minutes; defaults to log.retention.hours."),
    Key("log.retention.hours", INT, 168, None, HIGH, READ_ONLY,
        "Delete segments older than this many hours."),
    Key("log.retention.bytes", LONG, -1, None, HIGH, CLUSTER_WIDE,
        "Delete old segments while a partition is larger than this; -1 for no limit."),
    Key("log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY,
        "How often logs are checked for segments to delete."),
    Key("log.cleanup.policy", LIST, ("delete",), items("compact", "delete"), MEDIUM, CLUSTER_WIDE,
        "The cleanup policy of old segments: delete, compact, both, or none if empty."),
    Key("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long segments of a tiered log are kept on local disk; -2 means log.retention.ms."),
    Key("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How many bytes of a tiered log are kept on local disk; -2 means log.retention.bytes."),
    Key("log.remote.copy.lag.ms", LONG, 0, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "The age at which a segment is copied to remote storage; -1: log.local.retention.ms."),
    Key("log.remote.copy.lag.bytes", LONG, -1, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "How many newer bytes a segment waits for before its copy; -1: log.local.retention.bytes."),
    Key("log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a segment's offset index; a full index rolls the segment."),
    Key("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The number of bytes between two index entries."),
    Key("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of records after which a log is synced to disk."),
    Key("log.flush.interval.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "The time after which a log is synced to disk; defaults to "
        "log.flush.scheduler.interval.ms."),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH, READ_ONLY,
        "How often logs are checked for whether they must be synced to disk."),
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often recovery points are checkpointed."),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often log start offsets are checkpointed."),
    Key("log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH, CLUSTER_WIDE,
        "How long to wait before a deleted file is removed from the disk."),
    Key("log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW, READ_ONLY,
        "The delay before the first run of retention, flush and checkpoint tasks.", internal=True),
    Key("log.preallocate", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Preallocate the whole size of a new segment."),
    Key("log.message.timestamp.type",
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM, CLUSTER_WIDE,
        "The timestamp of a record: CreateTime is the producer's, LogAppendTime the broker's."),
    Key("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be behind the broker's clock."),
    Key("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be ahead of the broker's clock."),
    Key("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Enable compaction."),
    Key("log.cleaner.threads", INT, 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The number of logs that are compacted in parallel."),
    Key("log.cleaner.io.max.bytes.per.second",
        DOUBLE, 1.7976931348623157e308, None, MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second that compaction reads and writes."),
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM, CLUSTER_WIDE,
        "The memory of the deduplication buffers, over all cleaners."),
    Key("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The memory of the I/O buffers, over all cleaners."),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM, CLUSTER_WIDE,
        "The load factor of the deduplication buffer."),
    Key("log.cleaner.backoff.ms", LONG, 15_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a cleaner pauses if there is nothing to clean."),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "The minimum ratio of uncompacted to total log size for compaction."),
    Key("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a tombstone is retained after it was compacted."),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time a record remains uncompacted."),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The maximum time a record remains ineligible for compaction."),
    Key("log.scrub.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Read stored segments in the background and check each batch's CRC; repair a damaged "
        "replica from another one."),
    Key("log.scrub.interval.ms", LONG, 604_800_000, at_least(1), LOW, READ_ONLY,
        "How often each log is checked from its start to its end."),
    Key("log.scrub.max.bytes.per.second", LONG, 10_485_760, at_least(1), LOW, READ_ONLY,
        "The maximum bytes per second that the check reads."),
    Key("compression.type",
        STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        HIGH, CLUSTER_WIDE,
        "The compression of stored batches; producer keeps that of the producer."),
    Key("compression.gzip.level", INT, -1, Range(1, 9, also=-1), MEDIUM, CLUSTER_WIDE,
        "The gzip compression level; -1 is gzip's default."),
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        "The lz4 compression level."),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The zstd compression level."),
    Key("message.max.bytes", INT, 1_048_588, at_least(0), HIGH, CLUSTER_WIDE,
        "The maximum size of a record batch, after compression."),
    Key("max.decompressed.message.bytes",
        INT, 2_147_483_639, between(1, 2_147_483_639), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a record of a compressed batch, after decompression."),
    Key("num.partitions", INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "The default number of partitions of a topic."),
)
# fmt: on
