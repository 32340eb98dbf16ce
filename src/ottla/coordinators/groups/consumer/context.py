"""What the rules of consumer groups know beside their groups: settings, the image, what was seen.

A shard has one. What it remembers of a group spares work and is found out again if it is lost:
with which topics the group was last compared, in which names its expressions were searched, and
when its targets were made. The first two are compared by identity, since an image shares with the
one before all that did not change.
"""

from typing import Any, ClassVar

import msgspec

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.epoch_group.context import EpochContext
from ottla.protocol.types import Millis


class ConsumerContext(EpochContext[ConsumerSettings]):
    """``awaiting_join`` are the classic members whose timeout to join again is running."""

    config_prefix: ClassVar[str] = "consumer"

    awaiting_join: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _compared: dict[str, tuple[Any, Any]] = msgspec.field(default_factory=dict)
    _searched: dict[str, Any] = msgspec.field(default_factory=dict)
    _assigned_at: dict[str, Millis] = msgspec.field(default_factory=dict)

    def metadata_hash(self, group: ConsumerGroup) -> int:
        """Return the number of the topics that a group reads, as they are now."""
        return self.hashes.of_group(self.image(), group.subscribed)

    def is_compared(self, group_id: str) -> bool:
        """Whether a group is known to be up to date with topics and racks."""
        image, seen = self.image(), self._compared.get(group_id)
        if seen is None:
            return False
        return seen[0] is image.topics.by_id and seen[1] is image.cluster.brokers

    def note_compared(self, group_id: str) -> None:
        """A group is up to date."""
        image = self.image()
        self._compared[group_id] = (image.topics.by_id, image.cluster.brokers)

    def is_searched(self, group_id: str) -> bool:
        """Whether a group's expressions were searched in all names there are."""
        return self._searched.get(group_id) is self.image().topics.ids

    def note_searched(self, group_id: str) -> None:
        """All names there are were searched."""
        self._searched[group_id] = self.image().topics.ids

    def assigned_at(self, group_id: str) -> Millis | None:
        """Return when a group's targets were last made here."""
        return self._assigned_at.get(group_id)

    def note_assigned(self, group_id: str, now: Millis) -> None:
        """A group's targets were made."""
        self._assigned_at[group_id] = now

    def forget(self, group_id: str) -> None:
        """Forget what was seen for a group that is no more."""
        self._assigned_at.pop(group_id, None)
        self._compared.pop(group_id, None)
        self._searched.pop(group_id, None)
        if self.awaiting_join:
            self.awaiting_join = {key for key in self.awaiting_join if key[0] != group_id}
