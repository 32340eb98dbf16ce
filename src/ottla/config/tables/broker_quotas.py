"""Broker keys: replication throttles; they exist only as dynamic settings.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import at_least
from ottla.config.values import Type

LONG = Type.LONG
MEDIUM = Importance.MEDIUM
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
BROKER_QUOTAS: tuple[Key, ...] = (
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second that throttled replicas fetch from this leader."),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second that throttled replicas on this broker fetch."),
    Key("replica.alter.log.dirs.io.max.bytes.per.second",
        LONG, LONG_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum bytes per second copied between log directories of this broker."),
)
# fmt: on
