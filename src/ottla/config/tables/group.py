"""Group keys: one group.

Each row: name, type, default, rule, importance, update mode, description.
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
        "The heartbeat interval of consumers of this group."),
    Key("consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A consumer without a heartbeat for this long is removed from this group."),
    Key("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether a dead letter contains key, value and headers of the record, or only its "
        "position."),
    Key("errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "The dead-letter topic for records that are rejected or delivered too often; empty for "
        "none. It needs share.version 2."),
    Key("ottla.errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "The earlier name of errors.deadletterqueue.topic.name; it works at share.version 1, too."),
    Key("ottla.errors.deadletterqueue.copy.record.enable",
        BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "The earlier name of errors.deadletterqueue.copy.record.enable."),
    Key("share.auto.offset.reset", STRING, "latest", OffsetReset(), MEDIUM, CLUSTER_WIDE,
        "Where a new share partition starts: latest, earliest, or by_duration and an ISO 8601 "
        "duration back."),
    Key("share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The heartbeat interval of share consumers of this group."),
    Key("share.isolation.level",
        STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"), MEDIUM,
        CLUSTER_WIDE,
        "Whether share consumers read uncommitted transactional records."),
    Key("share.record.lock.duration.ms", INT, 30_000, at_least(1000), MEDIUM, CLUSTER_WIDE,
        "An acquired record that is not acknowledged within this time becomes available again."),
    Key("share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A share consumer without a heartbeat for this long is removed from this group."),
    Key("streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "The heartbeat interval of streams clients of this group."),
    Key("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long this group, when new, waits for more members before its first assignment."),
    Key("streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The number of standby replicas of each task."),
    Key("streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM, CLUSTER_WIDE,
        "A streams client without a heartbeat for this long is removed from this group."),
)
# fmt: on
