"""The interface of every kind of group.

A group id belongs to one kind at a time; a group of another kind may replace an empty group.
"""

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Millis, Uuid


class GroupType(enum.Enum):
    """The kinds of groups, by their names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


PartitionCheck: TypeAlias = Callable[[str, Uuid, int], ErrorCode]
"""Checks a commit for one partition: topic, topic id, partition."""


class Committer(msgspec.Struct, frozen=True):
    """The member that commits offsets, from the request. ``epoch`` is a generation or an epoch."""

    member_id: str
    instance_id: str | None
    epoch: int
    is_transactional: bool
    version: int


class Group(Protocol):
    """A group of any kind. Checks return NONE if there is no error."""

    @property
    def group_id(self) -> str:
        """Its id."""
        ...

    @property
    def type(self) -> GroupType:
        """Its kind."""
        ...

    def state_name(self) -> str:
        """Return its state as Kafka prints it, as ``PreparingRebalance``."""
        ...

    def protocol_type(self) -> str:
        """Return its protocol type for ListGroups.

        ``consumer``, ``connect``, ``share``, or empty.
        """
        ...

    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def member_count(self) -> int:
        """Return how many members it has."""
        ...

    def check_offset_commit(self, committer: Committer) -> ErrorCode | PartitionCheck:
        """Check an offset commit; return an error, or a check for each partition."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check an offset fetch of a member that sends its id (KIP-848)."""
        ...

    def check_offset_delete(self) -> ErrorCode:
        """Check whether offsets may be deleted at all."""
        ...

    def check_delete(self) -> ErrorCode:
        """Check whether the group may be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets are kept."""
        ...

    def may_expire(self) -> bool:
        """Whether the group is removed once it has neither members nor offsets."""
        ...

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Return when retention starts for an offset committed then; None: it never expires."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group from the log, without its offsets."""
        ...
