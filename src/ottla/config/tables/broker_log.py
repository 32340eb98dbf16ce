"""Broker keys: logs on disk, retention, compaction and compression.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
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
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
BROKER_LOG: tuple[Key, ...] = (
    Key("log.dirs", LIST, None, some_items(), HIGH, READ_ONLY,
        "The directories that hold the logs; log.dir when not set."),
    Key("log.dir", LIST, ("/tmp/kafka-logs",), some_items(), HIGH, READ_ONLY,  # noqa: S108
        "The directory that holds the logs when log.dirs is not set."),
    Key("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "A broker that cannot report a failed directory for this long stops."),
    Key("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH, CLUSTER_WIDE,
        "Roll a segment at this size."),
    Key("log.roll.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Roll a segment at this age; log.roll.hours when not set."),
    Key("log.roll.hours", INT, 168, at_least(1), HIGH, READ_ONLY,
        "Roll a segment at this age in hours."),
    Key("log.roll.jitter.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Roll up to this much earlier, at random; log.roll.jitter.hours when not set."),
    Key("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, READ_ONLY,
        "Roll up to this much earlier, at random, in hours."),
    Key("log.retention.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Delete segments older than this; -1 keeps them; log.retention.minutes when not set."),
    Key("log.retention.minutes", INT, None, None, HIGH, READ_ONLY,
        "Delete segments older than this in minutes; log.retention.hours when not set."),
    Key("log.retention.hours", INT, 168, None, HIGH, READ_ONLY,
        "Delete segments older than this in hours."),
    Key("log.retention.bytes", LONG, -1, None, HIGH, CLUSTER_WIDE,
        "Delete old segments while a partition is larger than this; -1 for no bound."),
    Key("log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY,
        "How often logs are checked for segments to delete."),
    Key("log.cleanup.policy", LIST, ("delete",), items("compact", "delete"), MEDIUM, CLUSTER_WIDE,
        "What happens to old records: delete, compact, both, or neither when empty."),
    Key("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long a tiered log also stays on local disk; -2 follows log.retention.ms."),
    Key("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How much of a tiered log also stays on local disk; -2 follows log.retention.bytes."),
    Key("log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The largest offset index of a segment; a full index rolls it."),
    Key("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "An index entry is added after this many bytes."),
    Key("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, CLUSTER_WIDE,
        "fsync a log after this many records."),
    Key("log.flush.interval.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "fsync a log after this long; log.flush.scheduler.interval.ms when not set."),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH, READ_ONLY,
        "How often logs are checked for one that is due for fsync."),
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often recovery points are written down."),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH, READ_ONLY,
        "How often log start offsets are written down."),
    Key("log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH, CLUSTER_WIDE,
        "How long a deleted segment stays on disk under another name."),
    Key("log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW, READ_ONLY,
        "The pause before the first run of retention, flush and checkpoint tasks.", internal=True),
    Key("log.preallocate", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Reserve a segment's whole size when it is made."),
    Key("log.message.timestamp.type",
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM, CLUSTER_WIDE,
        "Whose clock a record carries: CreateTime the producer's, LogAppendTime the broker's."),
    Key("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a producer's timestamp may lie in the past."),
    Key("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a producer's timestamp may lie in the future."),
    Key("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Run compaction at all."),
    Key("log.cleaner.threads", INT, 1, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How many logs are compacted side by side."),
    Key("log.cleaner.io.max.bytes.per.second",
        DOUBLE, 1.7976931348623157e308, None, MEDIUM, CLUSTER_WIDE,
        "Compaction reads and writes no more than this a second."),
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM, CLUSTER_WIDE,
        "Memory for the table of keys, over all cleaners."),
    Key("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Memory for reading and writing, over all cleaners."),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM, CLUSTER_WIDE,
        "How full the table of keys may get."),
    Key("log.cleaner.backoff.ms", LONG, 15_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The pause of a cleaner that found nothing to do."),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "Compact a log when at least this share of it is uncompacted."),
    Key("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a tombstone outlives the compaction that made it final."),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "A record stays uncompacted for at least this long."),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A record stays uncompacted for at most this long."),
    Key("log.scrub.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Read stored segments in the background and check each batch's CRC; repair a damaged "
        "replica from another one."),
    Key("log.scrub.interval.ms", LONG, 604_800_000, at_least(1), LOW, READ_ONLY,
        "How often each log is checked from its start to its end."),
    Key("log.scrub.max.bytes.per.second", LONG, 10_485_760, at_least(1), LOW, READ_ONLY,
        "The check reads no more than this a second."),
    Key("compression.type",
        STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        HIGH, CLUSTER_WIDE,
        "How batches are stored: as the producer sent them, or in this compression."),
    Key("compression.gzip.level", INT, -1, Range(1, 9, also=-1), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with gzip; -1 is gzip's own default."),
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with lz4."),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with zstd."),
    Key("message.max.bytes", INT, 1_048_588, at_least(0), HIGH, CLUSTER_WIDE,
        "The largest batch taken, after compression."),
    Key("num.partitions", INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "How many partitions a topic gets when its creator does not say."),
)
# fmt: on
