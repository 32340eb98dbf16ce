"""Client metrics keys: what clients are asked to measure (KIP-714).

Each row: name, type, default, rule, importance, update mode, description.
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
        "The clients to collect from, as selector=regular expression; all must match; every client "
        "if empty."),
    Key("metrics", LIST, (), items(), MEDIUM, CLUSTER_WIDE,
        "The prefixes of the metrics to collect; * for all, none if empty."),
)
# fmt: on
