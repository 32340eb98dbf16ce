"""The definition of one configuration key."""

import enum

import msgspec

from ottla.config.value_rules import Rule
from ottla.config.values import Type, Value


class Scope(enum.Enum):
    """The kind of resource that a key configures."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


class Update(enum.Enum):
    """When a change takes effect, and at which level it may be made (KIP-226).

    A cluster-wide key may also be set for one broker; a per-broker key only for one.
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(enum.Enum):
    """Kafka's own ranking; the documentation is ordered by it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Required(enum.Enum):
    """The default of a key that must be set."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED


class Key(msgspec.Struct, frozen=True):
    """One key. ``default`` is already parsed; None means that the key is not set.

    An ``internal`` key has an effect but is not listed by DescribeConfigs.
    """

    name: str
    type: Type
    default: Value | Required | None
    rule: Rule | None
    importance: Importance
    update: Update
    doc: str
    internal: bool = False

    @property
    def field(self) -> str:
        """The name as a Python attribute."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is Type.PASSWORD

    @property
    def default_value(self) -> Value | None:
        """The default, or None for a key that must be set."""
        return None if isinstance(self.default, Required) else self.default
