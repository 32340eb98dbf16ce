"""Client metrics keys: what clients are asked to measure (KIP-714).

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import ClientMatch, between, items
from ottla.config.values import Type

INT = Type.INT
LIST = Type.LIST
MEDIUM = Importance.MEDIUM
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
CLIENT_METRICS: tuple[Key, ...] = (
    Key("interval.ms", INT, 300_000, between(100, 3_600_000), MEDIUM, CLUSTER_WIDE,
        "How often a matching client pushes its metrics."),
    Key("match", LIST, (), ClientMatch(), MEDIUM, CLUSTER_WIDE,
        "Which clients: selector=regular expression, all of which must match; every client "
        "when empty."),
    Key("metrics", LIST, (), items(), MEDIUM, CLUSTER_WIDE,
        "Prefixes of the metrics wanted; * for all, none when empty."),
)
# fmt: on
