"""The settings of a kind of group with epochs, and what its decisions know beside the groups."""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

import msgspec

from ottla.coordinators.groups.epoch_group.topic_hashes import TopicHashes
from ottla.coordinators.groups.group_configs import ANY, Bounds, number_of_group
from ottla.metadata.image import Image


class EpochSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Each field is a ``group.<kind>.*`` key of the broker.

    A group may override some of them by a config of its own; the bounds limit that.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 2**31 - 1
    session_bounds: Bounds = ANY
    heartbeat_bounds: Bounds = ANY


SettingsT = TypeVar("SettingsT", bound=EpochSettings)


class EpochContext(msgspec.Struct, Generic[SettingsT]):
    """One per shard. ``config_prefix`` starts the names of the configs that a group may set."""

    config_prefix: ClassVar[str]

    settings: SettingsT
    image: Callable[[], Image]
    hashes: TopicHashes = msgspec.field(default_factory=TopicHashes)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member may send no heartbeat before it is removed."""
        default, bounds = self.settings.session_timeout_ms, self.settings.session_bounds
        return self.group_number(group_id, "session.timeout.ms", default, bounds)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often members are asked to send heartbeats."""
        default, bounds = self.settings.heartbeat_interval_ms, self.settings.heartbeat_bounds
        return self.group_number(group_id, "heartbeat.interval.ms", default, bounds)

    def group_number(self, group_id: str, key: str, default: int, bounds: Bounds = ANY) -> int:
        """Return a number that a group has set for itself, within ``bounds``, or the default."""
        name = f"{self.config_prefix}.{key}"
        return number_of_group(self.image(), group_id, name, default, bounds)

    def forget(self, group_id: str) -> None:
        """Discard what is remembered of a group that was deleted."""
