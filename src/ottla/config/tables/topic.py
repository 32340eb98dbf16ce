"""Topic keys: one topic.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import Range, ThrottledReplicas, at_least, between, items, one_of
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
MEDIUM = Importance.MEDIUM
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
TOPIC: tuple[Key, ...] = (
    Key("cleanup.policy", LIST, ("delete",), items("compact", "delete"), MEDIUM, CLUSTER_WIDE,
        "The cleanup policy of old segments: delete, compact, both, or none if empty."),
    Key("compression.type",
        STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        MEDIUM, CLUSTER_WIDE,
        "The compression of stored batches; producer keeps that of the producer."),
    Key("compression.gzip.level", INT, -1, Range(1, 9, also=-1), MEDIUM, CLUSTER_WIDE,
        "The gzip compression level; -1 is gzip's default."),
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        "The lz4 compression level."),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The zstd compression level."),
    Key("delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a tombstone is retained after it was compacted."),
    Key("file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long to wait before a deleted file is removed from the disk."),
    Key("flush.messages", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of records after which the log is synced to disk."),
    Key("flush.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The time after which the log is synced to disk."),
    Key("follower.replication.throttled.replicas",
        LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "The replicas throttled on the follower side, as partition:broker, or * for all."),
    Key("leader.replication.throttled.replicas",
        LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "The replicas throttled on the leader side, as partition:broker, or * for all."),
    Key("index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The number of bytes between two index entries."),
    Key("internal.segment.bytes", INT, None, None, MEDIUM, CLUSTER_WIDE,
        "Segment size without its lower bound, for tests.", internal=True),
    Key("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How many bytes of a tiered log are kept on local disk; -2 means retention.bytes."),
    Key("local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long segments of a tiered log are kept on local disk; -2 means retention.ms."),
    Key("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The maximum time a record remains ineligible for compaction."),
    Key("max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a record batch, after compression."),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be ahead of the broker's clock."),
    Key("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's timestamp may be behind the broker's clock."),
    Key("message.timestamp.type",
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM, CLUSTER_WIDE,
        "The timestamp of a record: CreateTime is the producer's, LogAppendTime the broker's."),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "The minimum ratio of uncompacted to total log size for compaction."),
    Key("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time a record remains uncompacted."),
    Key("min.insync.replicas", INT, 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The minimum number of in-sync replicas, including the leader, for a write with acks=all."),
    Key("preallocate", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Preallocate the whole size of a new segment."),
    Key("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Stop copying to remote storage; remote segments stay readable and expire."),
    Key("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Delete the remote segments when remote storage is disabled."),
    Key("remote.storage.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Keep old segments in remote storage."),
    Key("retention.bytes", LONG, -1, None, MEDIUM, CLUSTER_WIDE,
        "Delete old segments while a partition is larger than this; -1 for no limit."),
    Key("retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "Delete segments older than this; -1 for no limit."),
    Key("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), MEDIUM, CLUSTER_WIDE,
        "Roll a segment at this size."),
    Key("segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The maximum size of a segment's offset index; a full index rolls the segment."),
    Key("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum random jitter subtracted from segment.ms."),
    Key("segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "Roll a segment at this age."),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Allow an out-of-sync replica to become leader as a last resort, which may lose records."),
    Key("ottla.errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether groups may use this topic as their dead letter topic."),
)
# fmt: on
