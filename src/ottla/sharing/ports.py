"""What the leaders of share partitions need of the rest of a broker."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.types import TopicIdPartition
from ottla.sharing.acquisition import StateBatch, Write


class ShareKey(NamedTuple):
    """A partition as one group shares it."""

    group_id: str
    place: TopicIdPartition


class Persisted(NamedTuple):
    """What is kept of a share partition; ``start`` is -1 where nobody has chosen one yet."""

    code: ErrorCode
    state_epoch: int = 0
    start: int = -1
    batches: tuple[StateBatch, ...] = ()


class Persister(Protocol):
    """Keeps the state of share partitions. Raises a `Fault` where nobody answers."""

    async def read(self, key: ShareKey, leader_epoch: int) -> Persisted:
        """Return the state, and fence leaders of older epochs."""
        ...

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, write: Write
    ) -> ErrorCode:
        """Keep what changed; durable when NONE is returned."""
        ...


class DeadLetterTerms(msgspec.Struct, frozen=True):
    """Where a group has records written that nobody could use, and whether whole."""

    topic: str
    copies_record: bool = False


class DeadLetters(Protocol):
    """Writes what could not be delivered to another topic."""

    async def write(self, topic: str, origin: int, records: Sequence[Record]) -> ErrorCode:
        """Write records that come from partition ``origin``; durable when NONE is returned.

        Raises a `Fault` where nobody answers.
        """
        ...


class Terms(msgspec.Struct, frozen=True):
    """What a group has set for itself. ``reset`` as ``share.auto.offset.reset`` has it."""

    lock_ms: int = 30_000
    is_read_committed: bool = False
    reset: str = "latest"
    dead_letters: DeadLetterTerms | None = None
