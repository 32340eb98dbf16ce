"""Topic keys: one topic.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
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
        "What happens to old records: delete, compact, both, or neither when empty."),
    Key("compression.type",
        STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        MEDIUM, CLUSTER_WIDE,
        "How batches are stored: as the producer sent them, or in this compression."),
    Key("compression.gzip.level", INT, -1, Range(1, 9, also=-1), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with gzip; -1 is gzip's own default."),
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with lz4."),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The level used when the broker compresses with zstd."),
    Key("delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a tombstone outlives the compaction that made it final."),
    Key("file.delete.delay.ms", LONG, 60_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a deleted segment stays on disk under another name."),
    Key("flush.messages", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "fsync the log after this many records."),
    Key("flush.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "fsync the log after this long."),
    Key("follower.replication.throttled.replicas",
        LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "Replicas throttled where they follow, as partition:broker, or * for all."),
    Key("leader.replication.throttled.replicas",
        LIST, (), ThrottledReplicas(), MEDIUM, CLUSTER_WIDE,
        "Replicas throttled where they are led, as partition:broker, or * for all."),
    Key("index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE,
        "An index entry is added after this many bytes."),
    Key("internal.segment.bytes", INT, None, None, MEDIUM, CLUSTER_WIDE,
        "Segment size without its lower bound, for tests.", internal=True),
    Key("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How much of a tiered log also stays on local disk; -2 follows retention.bytes."),
    Key("local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long a tiered log also stays on local disk; -2 follows retention.ms."),
    Key("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A record stays uncompacted for at most this long."),
    Key("max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The largest batch taken, after compression."),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a producer's timestamp may lie in the future."),
    Key("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a producer's timestamp may lie in the past."),
    Key("message.timestamp.type",
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), MEDIUM, CLUSTER_WIDE,
        "Whose clock a record carries: CreateTime the producer's, LogAppendTime the broker's."),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE,
        "Compact the log when at least this share of it is uncompacted."),
    Key("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "A record stays uncompacted for at least this long."),
    Key("min.insync.replicas", INT, 1, at_least(1), MEDIUM, CLUSTER_WIDE,
        "With acks=all, a write needs this many replicas in sync, the leader included."),
    Key("preallocate", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Reserve a segment's whole size when it is made."),
    Key("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Copy nothing more to remote storage; what is there stays readable and expires."),
    Key("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Delete the remote segments when remote storage is turned off."),
    Key("remote.storage.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Keep old segments in remote storage."),
    Key("retention.bytes", LONG, -1, None, MEDIUM, CLUSTER_WIDE,
        "Delete old segments while a partition is larger than this; -1 for no bound."),
    Key("retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, CLUSTER_WIDE,
        "Delete segments older than this; -1 keeps them."),
    Key("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), MEDIUM, CLUSTER_WIDE,
        "Roll a segment at this size."),
    Key("segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE,
        "The largest offset index of a segment; a full index rolls it."),
    Key("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "Roll up to this much earlier, at random."),
    Key("segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "Roll a segment at this age."),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Let a replica out of sync lead when no other is left, losing records."),
    Key("ottla.errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether groups may name this topic for records that cannot be delivered."),
)
# fmt: on
