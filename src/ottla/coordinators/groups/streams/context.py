"""What the rules of streams groups know beside their groups: settings, the image, what is fleeting.

A shard has one. What it remembers of a group is found out again, or does not matter, once it is
lost: how the topology fits the topics there are, that a shutdown was asked for, which groups are
still being formed, and how often endpoints have changed.
"""

from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ottla.coordinators.groups.epoch_group.context import EpochContext
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.settings import NUM_STANDBY_REPLICAS, StreamsSettings
from ottla.coordinators.groups.streams.topics import Configured, configure
from ottla.coordinators.groups.streams.topology import Topology

# Endpoints change seldom more often than this within an epoch of their group.
_APART: Final = 1000
_INT_MAX: Final = 2**31 - 1


class Seen(NamedTuple):
    """How a topology fits an image; compared by identity, as an image shares what is the same."""

    topology: Topology
    topics: Any
    brokers: Any
    configured: Configured
    metadata_hash: int


class StreamsContext(EpochContext[StreamsSettings]):
    """``forming`` are groups whose first members wait for others; a timer ends that.

    ``shutdowns`` has the member that asked for the end of its application.
    """

    config_prefix: ClassVar[str] = "streams"

    forming: set[str] = msgspec.field(default_factory=set)
    shutdowns: dict[str, str] = msgspec.field(default_factory=dict)
    endpoint_epochs: dict[str, int] = msgspec.field(default_factory=dict)
    _seen: dict[str, Seen] = msgspec.field(default_factory=dict)

    def look(self, group_id: str, topology: Topology) -> Seen:
        """Return how a group's topology fits the topics as they are now.

        Raises `InvalidTopology` where it fits none.
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
        """Return how many partitions a topic has; None if it is not there."""
        found = self.image().topics.named(topic)
        return None if found is None else len(found.partitions)

    def endpoint_epoch(self, group_id: str) -> int:
        """Return how often the endpoints of a group have changed what they run."""
        return self.endpoint_epochs.get(group_id, 0)

    def take_over(self, group: StreamsGroup) -> None:
        """Begin to coordinate a group that was coordinated elsewhere.

        Its endpoints are counted on from a number that the coordinator before has hardly told
        anybody: a member that knows the same number is not told what it missed.
        """
        self.endpoint_epochs[group.group_id] = group.epoch * _APART & _INT_MAX

    def note_endpoint(self, group_id: str) -> None:
        """An endpoint runs other tasks than before: all members shall hear of it."""
        self.endpoint_epochs[group_id] = self.endpoint_epoch(group_id) + 1 & _INT_MAX

    def note_members(self, group: StreamsGroup) -> None:
        """A group has changed. One without members has nobody to shut down any more."""
        if not group.members:
            self.shutdowns.pop(group.group_id, None)

    def forget(self, group_id: str) -> None:
        """Forget a group that is no more; whether one is formed is for its timer to end."""
        self._seen.pop(group_id, None)
        self.shutdowns.pop(group_id, None)
        self.endpoint_epochs.pop(group_id, None)

    # -- settings --------------------------------------------------------------

    def initial_delay_ms(self, group_id: str) -> int:
        """Return how long the first members of a group wait for others."""
        default = self.settings.initial_rebalance_delay_ms
        return self.group_number(group_id, "initial.rebalance.delay.ms", default)

    def assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        """Return the settings that targets depend on, as a record keeps them."""
        default, bounds = self.settings.num_standby_replicas, self.settings.standby_bounds
        count = self.group_number(group_id, NUM_STANDBY_REPLICAS, default, bounds)
        return ((NUM_STANDBY_REPLICAS, str(count)),)
