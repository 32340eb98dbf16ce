"""What the leaders of share partitions need from the rest of a broker."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Offset, TopicIdPartition
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.ports import Clock
from ottla.sharing.acquisition import Limits, StateBatch, Write
from ottla.storage.log.read import RemoteRecords


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


class Origin(NamedTuple):
    """The group and the partition of the records."""

    group_id: str
    topic: str
    partition: int


class DeadLetters(Protocol):
    """Writes undeliverable records to the dead-letter topic."""

    async def write(
        self, topic: str, origin: Origin, letters: Sequence[Record], *, may_exist: bool
    ) -> ErrorCode:
        """Write dead letters of one partition; durable when NONE is returned.

        ``may_exist``: some may have been written before, by this broker or an earlier leader; they
        are looked for and not written again. Raises a `Fault` if the leader does not answer.
        """
        ...

    def lost(self, origin: Origin, topic: str, offsets: tuple[Offset, Offset], count: int) -> None:
        """Note records that are archived without a dead letter."""
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


class ShareDependencies(msgspec.Struct, frozen=True):
    """The dependencies of the share partitions of a broker."""

    partitions: Partitions
    persister: Persister
    clock: Clock
    terms_of: Callable[[str], ShareGroupConfig]
    limits: Limits
    dead_letters: DeadLetters
    remote: RemoteReader | None = None
