"""Committed offsets of all groups of a shard, and those of transactions still open.

    committed   group -> (topic, partition) -> offset          immutable: views share it
    pending     producer id -> group -> (topic, partition) -> offset

An offset that a transaction commits is pending until its marker, and takes effect at the marker
only if no later record of the log has set the same offset meanwhile: compaction keeps the last
record of a key, so anything else would make a reload differ from the live state. A tombstone
removes both kinds.

Everything here is changed by replay alone.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from immutables import Map

from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.types import NO_TIMESTAMP, ZERO_UUID, Millis, Offset, Uuid

TopicPartition: TypeAlias = tuple[str, int]
GroupOffsets: TypeAlias = Map[TopicPartition, "CommittedOffset"]


class CommittedOffset(NamedTuple):
    """One offset. ``expires`` is -1 unless the commit said how long to keep it (before v5)."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: Millis
    expires: Millis = NO_TIMESTAMP
    topic_id: Uuid = ZERO_UUID
    record_offset: Offset = Offset(-1)

    def is_of(self, topic_id: Uuid) -> bool:
        """Whether it is an offset of this topic; without both ids nobody can tell."""
        return ZERO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id


# What Kafka 4 writes; version 1 is the only one that can say when the offset expires.
_VERSION = 4
_VERSION_EXPIRING = 1


def offset_record(group: str, at: TopicPartition, found: CommittedOffset) -> CoordinatorRecord:
    """Return the record that commits an offset."""
    topic, partition = at
    value = OffsetCommitValue(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_timestamp=found.committed_at,
        expire_timestamp=found.expires,
        topic_id=found.topic_id,
    )
    version = _VERSION if found.expires == NO_TIMESTAMP else _VERSION_EXPIRING
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return CoordinatorRecord(key, Versioned(value, version))


def offset_tombstone(group: str, at: TopicPartition) -> CoordinatorRecord:
    """Return the record that removes an offset."""
    topic, partition = at
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return CoordinatorRecord(key, None)


class Offsets:
    """The offsets of one shard."""

    def __init__(self) -> None:
        self.committed: Map[str, GroupOffsets] = Map()
        self.pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    # -- replay ----------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: Offset, producer: int
    ) -> None:
        """Take a record; ``producer`` is -1 outside a transaction."""
        place = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, place)
            return
        found = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            Millis(value.commit_timestamp),
            Millis(value.expire_timestamp),
            value.topic_id,
            at,
        )
        if producer < 0:
            self._put(key.group, place, found)
        else:
            self.pending.setdefault(producer, {}).setdefault(key.group, {})[place] = found

    def end_transaction(self, producer: int, *, is_commit: bool) -> None:
        """Let the offsets of a producer's transaction count, or forget them."""
        for group, offsets in self.pending.pop(producer, {}).items():
            for place, found in offsets.items() if is_commit else ():
                present = self.get(group, place)
                if present is None or found.record_offset > present.record_offset:
                    self._put(group, place, found)

    def _put(self, group: str, place: TopicPartition, found: CommittedOffset) -> None:
        offsets = self.committed.get(group, _NONE)
        self.committed = self.committed.set(group, offsets.set(place, found))

    def _remove(self, group: str, place: TopicPartition) -> None:
        offsets = self.committed.get(group, _NONE)
        if place in offsets:
            left = offsets.delete(place)
            kept = self.committed
            self.committed = kept.set(group, left) if left else kept.delete(group)
        for producer, groups in list(self.pending.items()):
            pending = groups.get(group)
            if pending is None or pending.pop(place, None) is None:
                continue
            if not pending:
                del groups[group]
            if not groups:
                del self.pending[producer]

    # -- questions -------------------------------------------------------------

    def get(self, group: str, place: TopicPartition) -> CommittedOffset | None:
        """Return a committed offset."""
        return self.committed.get(group, _NONE).get(place)

    def of_group(self, group: str) -> GroupOffsets:
        """Return the committed offsets of a group."""
        return self.committed.get(group, _NONE)

    def is_pending(self, group: str, place: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(place in groups.get(group, ()) for groups in self.pending.values())

    def has_open_transaction(self, group: str) -> bool:
        """Whether an open transaction has an offset of this group."""
        return any(group in groups for groups in self.pending.values())

    def places(self, group: str) -> Iterator[TopicPartition]:
        """Yield all partitions of a group with an offset, committed or pending, in order."""
        found = set(self.of_group(group))
        for groups in self.pending.values():
            found.update(groups.get(group, ()))
        yield from sorted(found)

    def groups_with(self, topic: str, partition: int) -> Iterator[str]:
        """Yield the groups that have an offset of this partition, committed or pending."""
        names = set(self.committed)
        for groups in self.pending.values():
            names.update(groups)
        place = (topic, partition)
        for name in sorted(names):
            if self.get(name, place) is not None or self.is_pending(name, place):
                yield name


_NONE: GroupOffsets = Map()
