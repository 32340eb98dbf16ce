"""What every kind of group can be asked, whatever its protocol.

A group id belongs to one kind at a time; an empty group may give way to another kind.
"""

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Millis, Uuid


class GroupType(enum.Enum):
    """The kinds, by the names ListGroups has for them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


PartitionCheck: TypeAlias = Callable[[str, Uuid, int], ErrorCode]
"""Whether a member may commit for this one partition: topic, topic id, partition."""


class Committer(msgspec.Struct, frozen=True):
    """Who wants to commit offsets, as the request says. ``epoch`` is a generation or an epoch."""

    member_id: str
    instance_id: str | None
    epoch: int
    is_transactional: bool
    version: int


class Group(Protocol):
    """A group of any kind. Codes are NONE where there is no objection."""

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
        """Return what ListGroups says of it: ``consumer``, ``connect``, ``share``, or nothing."""
        ...

    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_offset_commit(self, committer: Committer) -> ErrorCode | PartitionCheck:
        """Say whether these offsets may be committed, or whom to ask for each partition."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Say whether offsets may be read by a member that names itself (KIP-848)."""
        ...

    def check_offset_delete(self) -> ErrorCode:
        """Say whether offsets may be deleted at all."""
        ...

    def check_delete(self) -> ErrorCode:
        """Say whether the group may be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets stay."""
        ...

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Return from when on retention counts for an offset committed then; None: never."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group from the log, its offsets apart."""
        ...
