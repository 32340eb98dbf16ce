"""Broker keys: tiered storage.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import NonEmpty, at_least, between
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
BROKER_REMOTE: tuple[Key, ...] = (
    Key("remote.log.storage.system.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Allow topics to keep old segments in remote storage."),
    Key("remote.log.storage.manager.class.name", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The class of the remote storage manager."),
    Key("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM, READ_ONLY,
        "The class path of that class."),
    Key("remote.log.storage.manager.impl.prefix",
        STRING, "rsm.config.", NonEmpty(), MEDIUM, READ_ONLY,
        "The prefix of keys that are passed to the remote storage manager."),
    Key("remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NonEmpty(), MEDIUM, READ_ONLY,
        "The class of the remote log metadata manager."),
    Key("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM, READ_ONLY,
        "The class path of that class."),
    Key("remote.log.metadata.manager.impl.prefix",
        STRING, "rlmm.config.", NonEmpty(), MEDIUM, READ_ONLY,
        "The prefix of keys that are passed to the remote log metadata manager."),
    Key("remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The listener used to write and read remote segment metadata."),
    Key("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW, READ_ONLY,
        "The maximum size of custom metadata of a remote segment."),
    Key("remote.log.index.file.cache.total.size.bytes",
        LONG, 1_073_741_824, at_least(1), LOW, CLUSTER_WIDE,
        "Disk space for indexes fetched from remote storage."),
    Key("remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM, READ_ONLY,
        "The older name of remote.log.manager.follower.thread.pool.size."),
    Key("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of segments that are copied to remote storage in parallel."),
    Key("remote.log.manager.expiration.thread.pool.size",
        INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of partitions that expire remote segments in parallel."),
    Key("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of followers that look up remote offsets in parallel."),
    Key("remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "How often a partition is checked for segments to copy or expire."),
    Key("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW, READ_ONLY,
        "The initial backoff after a failed remote task.", internal=True),
    Key("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "The maximum backoff after failed remote tasks.", internal=True),
    Key("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW, READ_ONLY,
        "The random jitter of that backoff, as a fraction of it.", internal=True),
    Key("remote.log.reader.threads", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The number of remote reads that run in parallel."),
    Key("remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of waiting remote reads; further ones are rejected."),
    Key("remote.log.manager.copy.max.bytes.per.second",
        LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second copied to remote storage."),
    Key("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM, READ_ONLY,
        "The number of samples kept for that quota."),
    Key("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "The time span of one sample for that quota."),
    Key("remote.log.manager.fetch.max.bytes.per.second",
        LONG, LONG_MAX, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second read from remote storage."),
    Key("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM, READ_ONLY,
        "The number of samples kept for that quota."),
    Key("remote.log.manager.fetch.quota.window.size.seconds",
        INT, 1, at_least(1), MEDIUM, READ_ONLY,
        "The time span of one sample for that quota."),
    Key("remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A fetch that reads remote storage is answered within this time."),
    Key("remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A ListOffsets that reads remote storage is answered within this time."),
)
# fmt: on
