"""What the members of all groups with epochs have in common."""

import enum
from typing import Any, Final, Protocol

from ottla.protocol.schema import Message

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member of a consumer group that will come back: its partitions stay reserved.
LEAVE_STATIC_EPOCH: Final = -2


class MemberState(enum.IntEnum):
    """How far a member is from its target, by the numbers in the records of consumer groups.

    Kafka names them UNREVOKED_PARTITIONS or UNREVOKED_TASKS, by the kind of group.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> "MemberState":
        """Return the state with this number; one that a newer version wrote is UNKNOWN."""
        return cls(number) if number in cls.__members__.values() else cls.UNKNOWN


class EpochMember(Protocol):
    """A member as records write and read it. Values are those of its own kind of group."""

    @property
    def member_id(self) -> str:
        """Its id."""
        ...

    def with_metadata(self, value: Any) -> "EpochMember":  # noqa: ANN401 - each kind has its own
        """Return the member with the metadata of a record."""
        ...

    def metadata_value(self) -> Message:
        """Return its metadata as the value of a record."""
        ...

    def with_assignment(self, value: Any) -> "EpochMember":  # noqa: ANN401 - as above
        """Return the member with the epoch and assignment of a record."""
        ...

    def assignment_value(self) -> Message:
        """Return its epoch and assignment as the value of a record."""
        ...


class ReconciledMember(EpochMember, Protocol):
    """A member that must revoke before others are assigned what it held."""

    @property
    def epoch(self) -> int:
        """The assignment epoch that it has reached."""
        ...

    @property
    def state(self) -> MemberState:
        """How far it is from its target."""
        ...

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for it to revoke."""
        ...

    @property
    def assigned(self) -> object:
        """What it may use now."""
        ...

    @property
    def pending_revocation(self) -> object:
        """What it was asked to revoke and may still use."""
        ...

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has exactly its target."""
        ...

    def without_assignment(self) -> "ReconciledMember":
        """Return the member without epoch and assignment: the tombstone of its assignment."""
        ...
