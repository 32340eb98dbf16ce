"""The settings of consumer groups."""

import enum
from collections.abc import Iterable
from typing import Final

from ottla.coordinators.groups.epoch_group.context import EpochSettings


class MigrationPolicy(enum.Enum):
    """In which direction groups may change their protocol while they have members."""

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


class ConsumerSettings(EpochSettings, frozen=True):
    """The ``group.consumer.*`` keys of the broker.

    The first assignor serves members that name none. ``is_served`` says whether
    ``group.coordinator.rebalance.protocols`` has the consumer protocol.
    """

    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    is_served: bool = True


# Clients use these names; a configuration may name Kafka's classes instead.
_ASSIGNOR_NAMES: Final = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def assignor_names(configured: Iterable[str]) -> tuple[str, ...]:
    """Return the names of configured assignors. Raises ValueError for an unknown one."""
    unknown = [each for each in configured if each not in _ASSIGNOR_NAMES]
    if unknown:
        raise ValueError(f"group.consumer.assignors: unknown {', '.join(unknown)}")
    return tuple(dict.fromkeys(_ASSIGNOR_NAMES[each] for each in configured))
