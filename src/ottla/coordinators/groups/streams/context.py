"""What decisions about streams groups know beside the groups: settings, the image, caches.

One per shard. What it remembers of a group is computed again, or does not matter, once it is lost:
how the topology fits the existing topics, that a shutdown was requested, which groups are still
forming, and how often endpoints have changed.
"""

from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ottla.coordinators.groups.epoch_group.context import EpochContext
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.settings import NUM_STANDBY_REPLICAS, StreamsSettings
from ottla.coordinators.groups.streams.topics import Configured, configure
from ottla.coordinators.groups.streams.topology import Topology

# Endpoints rarely change more often than this within one epoch of their group.
_APART: Final = 1000
_INT_MAX: Final = 2**31 - 1


class Seen(NamedTuple):
    """How a topology fits an image; compared by identity, as images share unchanged parts."""

    topology: Topology
    topics: Any
    brokers: Any
    configured: Configured
    metadata_hash: int


class StreamsContext(EpochContext[StreamsSettings]):
    """``forming`` are groups whose first members wait for others, until a timer fires.

    ``shutdowns`` has the member that requested the shutdown of its application.
    """

    config_prefix: ClassVar[str] = "streams"

    forming: set[str] = msgspec.field(default_factory=set)
    shutdowns: dict[str, str] = msgspec.field(default_factory=dict)
    endpoint_epochs: dict[str, int] = msgspec.field(default_factory=dict)
    _seen: dict[str, Seen] = msgspec.field(default_factory=dict)

    def look(self, group_id: str, topology: Topology) -> Seen:
        """Return how the topology of a group fits the topics as they are now.

        Raises `InvalidTopology` if it fits no topics at all.
        """
        image, seen = self.image(), self._seen.get(group_id)
        topics, brokers = image.topics.by_id, image.cluster.brokers
        if (
            seen is not None
            and seen.topology is topology
            and seen.topics is topics
            and seen.brokers is brokers
        ):
            return seen
        found = Seen(
            topology,
            topics,
            brokers,
            configure(topology, self.count_of),
            self.hashes.of_group(image, topology.required_topics),
        )
        self._seen[group_id] = found
        return found

    def count_of(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None if it does not exist."""
        found = self.image().topics.named(topic)
        return None if found is None else len(found.partitions)

    def endpoint_epoch(self, group_id: str) -> int:
        """Return how often the endpoints of a group have changed their tasks."""
        return self.endpoint_epochs.get(group_id, 0)

    def take_over(self, group: StreamsGroup) -> None:
        """Start to coordinate a group that was coordinated elsewhere.

        The endpoint epoch continues from a number that the previous coordinator has hardly used: a
        member that has the same number would not get the endpoints it missed.
        """
        self.endpoint_epochs[group.group_id] = group.epoch * _APART & _INT_MAX

    def note_endpoint(self, group_id: str) -> None:
        """Note that an endpoint runs other tasks than before.

        All members get the endpoints again.
        """
        self.endpoint_epochs[group_id] = self.endpoint_epoch(group_id) + 1 & _INT_MAX

    def note_members(self, group: StreamsGroup) -> None:
        """Note that a group has changed. A shutdown ends with the last member."""
        if not group.members:
            self.shutdowns.pop(group.group_id, None)

    def forget(self, group_id: str) -> None:
        """Discard what is remembered of a group that was deleted; forming ends by its timer."""
        self._seen.pop(group_id, None)
        self.shutdowns.pop(group_id, None)
        self.endpoint_epochs.pop(group_id, None)

    # -- settings --------------------------------------------------------------

    def initial_delay_ms(self, group_id: str) -> int:
        """Return how long the first members of a group wait for others."""
        default = self.settings.initial_rebalance_delay_ms
        return self.group_number(group_id, "initial.rebalance.delay.ms", default)

    def assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        """Return the settings that targets depend on, as a record stores them."""
        default, bounds = self.settings.num_standby_replicas, self.settings.standby_bounds
        count = self.group_number(group_id, NUM_STANDBY_REPLICAS, default, bounds)
        return ((NUM_STANDBY_REPLICAS, str(count)),)
