"""Group keys: one group.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import OffsetReset, at_least, one_of
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
MEDIUM = Importance.MEDIUM
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
GROUP: tuple[Key, ...] = (
    Key("consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often a consumer of this group is told to send heartbeats."),
    Key("consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A consumer silent for this long leaves this group."),
    Key("ottla.errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "The topic for records that members reject or that run out of deliveries; empty for none."),
    Key("ottla.errors.deadletterqueue.copy.record.enable",
        BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether key, value and headers of such a record go along, or only where it was."),
    Key("share.auto.offset.reset", STRING, "latest", OffsetReset(), MEDIUM, CLUSTER_WIDE,
        "Where a new share partition starts: latest, earliest, or by_duration and an ISO 8601 "
        "duration back."),
    Key("share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often a share consumer of this group is told to send heartbeats."),
    Key("share.isolation.level",
        STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), MEDIUM,
        CLUSTER_WIDE,
        "Whether share consumers see records of transactions that are not committed."),
    Key("share.record.lock.duration.ms", INT, 30_000, at_least(1000), MEDIUM, CLUSTER_WIDE,
        "An acquired record is offered again when not acknowledged within this time."),
    Key("share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A share consumer silent for this long leaves this group."),
    Key("streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often a streams client of this group is told to send heartbeats."),
    Key("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "This group, when new, waits this long for more members before its first assignment."),
    Key("streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How many standby copies each task has."),
    Key("streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A streams client silent for this long leaves this group."),
)
# fmt: on
