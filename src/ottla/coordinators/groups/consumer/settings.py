"""The settings of consumer groups, and what the image says about one group."""

import enum
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.coordinators.groups.group_configs import ANY, Bounds, number_of_group
from ottla.metadata.image import Image


class MigrationPolicy(enum.Enum):
    """Which way groups may change their protocol while members are in them."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    def may_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    def may_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Field by field the broker's ``group.consumer.*`` keys.

    The first assignor is the one for members that ask for none. ``is_served`` says whether
    ``group.coordinator.rebalance.protocols`` has the consumer protocol.
    """

    assignors: tuple[str, ...] = ("uniform", "range")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    is_served: bool = True
    session_bounds: Bounds = ANY
    heartbeat_bounds: Bounds = ANY


# By these names clients ask for them; a configuration may name Kafka's classes instead.
_ASSIGNOR_NAMES: Final = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def assignor_names(configured: Iterable[str]) -> tuple[str, ...]:
    """Return the names of configured assignors. Raises ValueError for one that is not here."""
    unknown = [each for each in configured if each not in _ASSIGNOR_NAMES]
    if unknown:
        raise ValueError(f"group.consumer.assignors: unknown {', '.join(unknown)}")
    return tuple(dict.fromkeys(_ASSIGNOR_NAMES[each] for each in configured))


def session_timeout_ms(settings: ConsumerSettings, image: Image, group_id: str) -> int:
    """Return after which silence a member of a group is let go."""
    default, key = settings.session_timeout_ms, "consumer.session.timeout.ms"
    return number_of_group(image, group_id, key, default, settings.session_bounds)


def heartbeat_interval_ms(settings: ConsumerSettings, image: Image, group_id: str) -> int:
    """Return how often members of a group are told to send heartbeats."""
    default, key = settings.heartbeat_interval_ms, "consumer.heartbeat.interval.ms"
    return number_of_group(image, group_id, key, default, settings.heartbeat_bounds)
