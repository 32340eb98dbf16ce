"""What decisions about consumer groups know beside the groups: settings, the image, caches.

One per shard. What it remembers of a group saves work and is computed again if it is lost: the
topics that the group was last compared with, the topic names that its expressions were matched
against, and when its targets were computed. The first two are compared by identity, since an image
shares unchanged parts with the one before.
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
        """Return the hash of the topics that a group reads, as they are now."""
        return self.hashes.of_group(self.image(), group.subscribed)

    def is_compared(self, group_id: str) -> bool:
        """Whether a group is known to be up to date with topics and racks."""
        image, seen = self.image(), self._compared.get(group_id)
        if seen is None:
            return False
        return seen[0] is image.topics.by_id and seen[1] is image.cluster.brokers

    def note_compared(self, group_id: str) -> None:
        """Note that a group is up to date."""
        image = self.image()
        self._compared[group_id] = (image.topics.by_id, image.cluster.brokers)

    def is_searched(self, group_id: str) -> bool:
        """Whether the expressions of a group were matched against all current topic names."""
        return self._searched.get(group_id) is self.image().topics.ids

    def note_searched(self, group_id: str) -> None:
        """Note that the expressions of a group were matched against all current topic names."""
        self._searched[group_id] = self.image().topics.ids

    def assigned_at(self, group_id: str) -> Millis | None:
        """Return when the targets of a group were last computed here."""
        return self._assigned_at.get(group_id)

    def note_assigned(self, group_id: str, now: Millis) -> None:
        """Note that the targets of a group were computed."""
        self._assigned_at[group_id] = now

    def forget(self, group_id: str) -> None:
        """Discard what is remembered of a group that was deleted."""
        self._assigned_at.pop(group_id, None)
        self._compared.pop(group_id, None)
        self._searched.pop(group_id, None)
        if self.awaiting_join:
            self.awaiting_join = {key for key in self.awaiting_join if key[0] != group_id}
