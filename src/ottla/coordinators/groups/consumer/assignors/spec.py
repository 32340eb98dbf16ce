"""The input and output of an assignor.

A target maps topic ids to sets of partitions; a topic without partitions is not in it, so that
equal targets compare equal. Everything is ordered by name or id first: the same group gets the same
target on every coordinator.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from ottla.protocol.types import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id. Immutable; no topic has an empty set."""

NO_PARTITIONS: Final[Partitions] = {}


class MemberSpec(msgspec.Struct, frozen=True):
    """A member: the existing topics it subscribes to, and its current target."""

    topics: frozenset[Uuid]
    target: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(msgspec.Struct, frozen=True):
    """A group. ``partition_counts`` has every topic that a member subscribes to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]

    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({member.topics for member in self.members.values()}) <= 1


Targets: TypeAlias = dict[str, Partitions]
Assignor: TypeAlias = Callable[[GroupSpec], Targets]


def gathered(pairs: Iterable[tuple[Uuid, int]]) -> Partitions:
    """Return single partitions as one target."""
    found: dict[Uuid, set[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}
