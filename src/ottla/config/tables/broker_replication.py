"""Broker keys: replicas, their leaders and what keeps them in step.

Each row: name, type, default, rule, importance, update mode, description.
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
        "The default replication factor of topics."),
    Key("min.insync.replicas", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "The minimum number of in-sync replicas, including the leader, for a write with acks=all."),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE,
        "Allow an out-of-sync replica to become leader as a last resort, which may lose records."),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, READ_ONLY,
        "How often the controller checks for partitions that need such an "
        "election.", internal=True),
    Key("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Move leadership back to preferred replicas if too many partitions have another leader."),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, READ_ONLY,
        "How often the leader imbalance is checked."),
    Key("replica.lag.time.max.ms", LONG, 30_000, None, HIGH, READ_ONLY,
        "A follower that has not caught up for this long is removed from the ISR."),
    Key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM, READ_ONLY,
        "The bytes that a follower requests per partition."),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM, READ_ONLY,
        "The bytes that a follower requests per fetch."),
    Key("replica.fetch.min.bytes", INT, 1, None, HIGH, READ_ONLY,
        "The minimum bytes of a response to a follower's fetch."),
    Key("replica.fetch.wait.max.ms", INT, 500, None, HIGH, READ_ONLY,
        "The maximum wait of a follower's fetch; must be below replica.lag.time.max.ms."),
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The backoff of a fetcher after a partition error."),
    Key("replica.socket.timeout.ms", INT, 30_000, None, HIGH, READ_ONLY,
        "The timeout of a follower's fetch."),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH, READ_ONLY,
        "The SO_RCVBUF buffer size of a follower's connection."),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH, READ_ONLY,
        "How often high watermarks are checkpointed."),
    Key("replica.selector.class", STRING, None, None, MEDIUM, READ_ONLY,
        "The selector of a consumer's replica: the rack-aware one, or the leader if not set."),
    Key("num.replica.fetchers", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of fetchers per source broker."),
    Key("num.replica.alter.log.dirs.threads", INT, None, None, HIGH, READ_ONLY,
        "The number of partitions moved between directories in parallel; one per directory if "
        "not set."),
)
# fmt: on
