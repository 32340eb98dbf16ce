"""Committed offsets of all groups of a shard, and those of open transactions.

    groups      group -> (topic, partition) -> offset          immutable: views share it
    pending     producer id -> group -> (topic, partition) -> offset

An offset that a transaction commits is pending until the marker, and takes effect with it only if
no later record of the log has set the same offset: compaction keeps the last record of a key, so
anything else would make a reload differ from the live state. A tombstone removes both kinds.

Only replay changes the state. A large commit is applied when its group is first read: most are
replaced by the next one before that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

import msgspec
from immutables import Map

from ottla.coordinators.groups.offsets.offset_bytes import NewOffset, key_of_topic, pairs_of_topic
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    Millis,
    Offset,
    Uuid,
)

TopicPartition: TypeAlias = tuple[str, int]
GroupOffsets: TypeAlias = Map[TopicPartition, "CommittedOffset"]

UNREAD_MIN: Final = 8
"""Smaller commits are applied at once: that costs less than to keep them."""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """One offset. ``expires`` is -1 unless the commit had a retention time (before v5).

    A broker has many of them, replaced by every commit; none can be part of a reference cycle.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: Millis
    expires: Millis = NO_TIMESTAMP
    topic_id: Uuid = ZERO_UUID
    record_offset: Offset = Offset(-1)

    def is_of(self, topic_id: Uuid) -> bool:
        """Whether it is an offset of this topic; unknown, so True, if one of the ids is missing."""
        return ZERO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id


class NewOffsets(NamedTuple):
    """The offsets of one topic to be committed, from the request."""

    topic: str
    topic_id: Uuid
    partitions: Sequence[NewOffset]


class OffsetCommits(msgspec.Struct, frozen=True):
    """The offsets of one commit, to be written and replayed together (a `Packed`).

    ``take`` is a method of the machine, called once they are in the log, with the offset of the
    first record and the producer id of the transaction. There is at least one offset.
    """

    group: str
    topics: list[NewOffsets]
    committed_at: Millis
    expires: Millis
    take: "Callable[[OffsetCommits, Offset, int], None]"

    def pairs(self) -> list[tuple[bytes, bytes | None]]:
        """Return the keys and values of the records."""
        times = (self.committed_at, self.expires)
        found: list[tuple[bytes, bytes | None]] = []
        for topic, topic_id, partitions in self.topics:
            key = key_of_topic(self.group, topic)
            found.extend(pairs_of_topic(key, topic_id, partitions, times))
        return found

    def replay(self, first: Offset, producer: Producer | None) -> None:
        """Apply them to the state."""
        self.take(self, first, NO_PRODUCER_ID if producer is None else producer.id)

    def committed(self, first: Offset) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Yield what a reader of the log finds, from offset ``first`` on.

        If the commit had a retention time, its records have neither leader epoch nor topic id.
        """
        at, expires, record_offset = self.committed_at, self.expires, first
        is_short = expires != NO_TIMESTAMP
        for topic, topic_id, partitions in self.topics:
            kept_id = ZERO_UUID if is_short else topic_id
            for each in partitions:
                epoch = NO_EPOCH if is_short else each.committed_leader_epoch
                metadata = each.committed_metadata or ""
                found = CommittedOffset(
                    each.committed_offset, epoch, metadata, at, expires, kept_id, record_offset
                )
                yield (topic, each.partition_index), found
                record_offset = Offset(record_offset + 1)


def offset_tombstone(group: str, at: TopicPartition) -> CoordinatorRecord:
    """Return the record that removes an offset."""
    topic, partition = at
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return CoordinatorRecord(key, None)


class AppendedCommit(Protocol):
    """A commit outside a transaction that is in the log: see `CommitBatch`."""

    @property
    def count(self) -> int:
        """The number of offsets."""
        ...

    @property
    def offsets(self) -> list[tuple[TopicPartition, CommittedOffset]]:
        """The offsets as a reader of the log gets them, in its order."""
        ...

    def replaces(self, earlier: Self) -> bool:
        """Whether it is known to have an offset for every partition of an earlier commit."""
        ...


class UnreadOffsets:
    """The offsets of a group, without its last commit until they are read. Immutable to readers."""

    __slots__ = ("_before", "_commit")

    def __init__(self, before: GroupOffsets, commit: AppendedCommit) -> None:
        self._before = before
        self._commit: AppendedCommit | None = commit

    def read(self) -> GroupOffsets:
        """Return the offsets, the last commit included."""
        if self._commit is not None:
            changed = self._before.mutate()
            changed.update(self._commit.offsets)
            self._before, self._commit = changed.finish(), None
        return self._before

    def after(self, commit: AppendedCommit) -> "UnreadOffsets":
        """Return the offsets after another commit; one that is replaced is never applied."""
        is_replaced = self._commit is not None and commit.replaces(self._commit)
        return UnreadOffsets(self._before if is_replaced else self.read(), commit)


OffsetsByGroup: TypeAlias = Map[str, GroupOffsets | UnreadOffsets]


def offsets_in(groups: OffsetsByGroup, group: str) -> GroupOffsets:
    """Return the offsets of one group."""
    found = groups.get(group, _NONE)
    return found.read() if isinstance(found, UnreadOffsets) else found


class Offsets:
    """The offsets of one shard."""

    def __init__(self) -> None:
        self.groups: OffsetsByGroup = Map()
        self.pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    # -- replay ----------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: Offset, producer: int
    ) -> None:
        """Replay a record; ``producer`` is -1 outside a transaction."""
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

    def take(self, commits: OffsetCommits, first: Offset, producer: int) -> None:
        """Apply the offsets of one commit, as `replay` applies each of them."""
        group = commits.group
        if producer >= 0:
            pending = self.pending.setdefault(producer, {}).setdefault(group, {})
            pending.update(commits.committed(first))
            return
        self.put_all(group, commits.committed(first))

    def put_all(
        self, group: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]
    ) -> None:
        """Apply the offsets of one commit outside a transaction.

        The last one of a partition wins.
        """
        changed = self.of_group(group).mutate()
        changed.update(offsets)
        self.groups = self.groups.set(group, changed.finish())

    def put_commit(self, group: str, commit: AppendedCommit) -> None:
        """Apply a commit as `put_all` does, a large one when it is first read."""
        if commit.count < UNREAD_MIN:
            self.put_all(group, commit.offsets)
            return
        present = self.groups.get(group, _NONE)
        if isinstance(present, UnreadOffsets):
            self.groups = self.groups.set(group, present.after(commit))
        else:
            self.groups = self.groups.set(group, UnreadOffsets(present, commit))

    def end_transaction(self, producer: int, *, is_commit: bool) -> None:
        """Apply the offsets of a producer's transaction, or discard them."""
        for group, offsets in self.pending.pop(producer, {}).items():
            for place, found in offsets.items() if is_commit else ():
                present = self.get(group, place)
                if present is None or found.record_offset > present.record_offset:
                    self._put(group, place, found)

    def _put(self, group: str, place: TopicPartition, found: CommittedOffset) -> None:
        self.groups = self.groups.set(group, self.of_group(group).set(place, found))

    def _remove(self, group: str, place: TopicPartition) -> None:
        offsets = self.of_group(group)
        if place in offsets:
            left, kept = offsets.delete(place), self.groups
            self.groups = kept.set(group, left) if left else kept.delete(group)
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
        return self.of_group(group).get(place)

    def of_group(self, group: str) -> GroupOffsets:
        """Return the committed offsets of a group."""
        return offsets_in(self.groups, group)

    @property
    def committed(self) -> Map[str, GroupOffsets]:
        """The committed offsets of all groups: reads every one of them."""
        return Map({group: self.of_group(group) for group in self.groups})

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
        names = set(self.groups)
        for groups in self.pending.values():
            names.update(groups)
        place = (topic, partition)
        for name in sorted(names):
            if self.get(name, place) is not None or self.is_pending(name, place):
                yield name


_NONE: GroupOffsets = Map()
