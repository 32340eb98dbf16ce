"""What the leaders of share partitions need from the rest of a broker."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Offset, TopicIdPartition
from ottla.replication.partition import Partition
from ottla.sharing.acquisition import StateBatch, Write
from ottla.storage.read import RemoteRecords


class ShareKey(NamedTuple):
    """A partition as one group shares it."""

    group_id: str
    place: TopicIdPartition


class Persisted(NamedTuple):
    """The stored state of a share partition; ``start`` is -1 if none was chosen yet."""

    code: ErrorCode
    state_epoch: int = 0
    start: int = -1
    batches: tuple[StateBatch, ...] = ()


class Persister(Protocol):
    """Stores the state of share partitions. Raises a `Fault` if the coordinator does not answer."""

    async def read(self, key: ShareKey, leader_epoch: int) -> Persisted:
        """Return the state, and fence leaders of older epochs."""
        ...

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, write: Write
    ) -> ErrorCode:
        """Store a change; durable when NONE is returned."""
        ...


class DeadLetterConfig(msgspec.Struct, frozen=True):
    """The dead-letter topic of a group, and whether whole records are copied."""

    topic: str
    copies_record: bool = False


class DeadLetters(Protocol):
    """Writes undeliverable records to the dead-letter topic."""

    async def write(self, topic: str, origin: int, records: Sequence[Record]) -> ErrorCode:
        """Write records that come from partition ``origin``; durable when NONE is returned.

        Raises a `Fault` if the leader does not answer.
        """
        ...


class RemoteReader(Protocol):
    """Reads records below the local log start from remote storage; its futures raise a `Fault`."""

    @property
    def is_throttled(self) -> bool:
        """Whether the quota for fetches from remote storage is exceeded."""
        ...

    def fetch(
        self, partition: Partition, offset: Offset, bytes_max: int, *, is_committed: bool
    ) -> "asyncio.Future[RemoteRecords]":
        """Begin to read batches from ``offset`` on; at least one."""
        ...


class ShareGroupConfig(msgspec.Struct, frozen=True):
    """The configs of a group. ``reset`` is that of ``share.auto.offset.reset``."""

    lock_ms: int = 30_000
    is_read_committed: bool = False
    reset: str = "latest"
    dead_letters: DeadLetterConfig | None = None
