"""The keys of the records of a group with epochs, and the tombstones made of them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.schema import Message


class RecordKeys(NamedTuple):
    """The types of the keys of one kind of group. ``other`` are those only this kind has.

    ``group`` and ``target_epoch`` are made of a group id; ``member``, ``target`` and
    ``assignment`` of a group id and a member id.
    """

    group: type[Any]
    member: type[Any]
    target_epoch: type[Any]
    target: type[Any]
    assignment: type[Any]
    other: tuple[type[Any], ...]

    def all(self) -> tuple[type[Message], ...]:
        """Return every type."""
        common = (self.group, self.member, self.target_epoch, self.target, self.assignment)
        return (*common, *self.other)

    def member_removal(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones that remove a member, its metadata last."""
        return tombstones(
            key(group_id, member_id) for key in (self.assignment, self.target, self.member)
        )

    def group_removal(
        self, group_id: str, members: Iterable[str], others: Sequence[Message]
    ) -> list[CoordinatorRecord]:
        """Return the tombstones that remove a group, that of the group itself last."""
        ordered = sorted(members)
        return tombstones(
            [
                *(self.assignment(group_id, each) for each in ordered),
                *(self.target(group_id, each) for each in ordered),
                self.target_epoch(group_id),
                *(self.member(group_id, each) for each in ordered),
                *others,
                self.group(group_id),
            ]
        )


def tombstones(keys: Iterable[Message]) -> list[CoordinatorRecord]:
    """Return a tombstone for each key."""
    return [CoordinatorRecord(key, None) for key in keys]
