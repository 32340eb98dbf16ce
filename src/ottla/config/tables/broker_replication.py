"""Broker keys: replicas, their leaders and what keeps them in step.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import at_least
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
READ_ONLY = Update.READ_ONLY
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
BROKER_REPLICATION: tuple[Key, ...] = (
    Key("default.replication.factor", INT, 1, None, MEDIUM, READ_ONLY,
        "How many replicas a topic gets when its creator does not say."),
    Key("min.insync.replicas", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "With acks=all, a write needs this many replicas in sync, the leader included."),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE,
        "Let a replica out of sync lead when no other is left, losing records."),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY,
        "How often the controller looks for partitions that need such an election.", internal=True),
    Key("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Move leadership back to preferred replicas when too many have drifted."),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, READ_ONLY,
        "How often that drift is checked."),
    Key("replica.lag.time.max.ms", LONG, 30_000, None, HIGH, READ_ONLY,
        "A follower not caught up for this long leaves the in-sync set."),
    Key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM, READ_ONLY,
        "How many bytes a follower asks for per partition."),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM, READ_ONLY,
        "How many bytes a follower asks for per fetch."),
    Key("replica.fetch.min.bytes", INT, 1, None, HIGH, READ_ONLY,
        "A follower's fetch waits for at least this many bytes."),
    Key("replica.fetch.wait.max.ms", INT, 500, None, HIGH, READ_ONLY,
        "A follower's fetch waits no longer than this; below replica.lag.time.max.ms."),
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The pause of a fetcher after a partition failed."),
    Key("replica.socket.timeout.ms", INT, 30_000, None, HIGH, READ_ONLY,
        "A follower's fetch fails after this long."),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH, READ_ONLY,
        "SO_RCVBUF of a follower's connection."),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH, READ_ONLY,
        "How often high watermarks are written down."),
    Key("replica.selector.class", STRING, None, None, MEDIUM, READ_ONLY,
        "How a consumer's replica is chosen; the rack-aware selector, or the leader when not set."),
    Key("num.replica.fetchers", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "How many fetchers a broker runs per leader it follows."),
    Key("num.replica.alter.log.dirs.threads", INT, None, None, HIGH, READ_ONLY,
        "How many partitions move between directories side by side; one per directory when "
        "not set."),
)
# fmt: on
