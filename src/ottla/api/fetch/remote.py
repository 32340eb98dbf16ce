"""Fetches that reach below the local log start: their records come from remote storage (KIP-405).

All partitions of a request are read at once, within ``remote.fetch.max.wait.ms`` (KIP-1018). One
that is not there by then has no records in this reply; its read goes on, for the next fetch.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.api.fetch.partitions import FetchedPartition
from ottla.api.fetch.reply import Row
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis, Offset
from ottla.replication.partition import Partition
from ottla.storage.log.read import RemoteRecords, TimestampedOffset


class RemoteReader(Protocol):
    """Reads remote storage; its futures raise a `Fault`."""

    @property
    def is_throttled(self) -> bool:
        """Whether the quota for fetches from remote storage is exceeded."""
        ...

    @property
    def fetch_wait_ms(self) -> int:
        """``remote.fetch.max.wait.ms``."""
        ...

    @property
    def lookup_wait_ms(self) -> int:
        """``remote.list.offsets.request.timeout.ms``."""
        ...

    def fetch(
        self, partition: Partition, offset: Offset, bytes_max: int, *, is_committed: bool
    ) -> "asyncio.Future[RemoteRecords]":
        """Begin to read batches from ``offset`` on; at least one."""
        ...

    def find_timestamp(
        self, partition: Partition, timestamp: Millis
    ) -> "asyncio.Future[TimestampedOffset | None]":
        """Begin to look for the first record at or after ``timestamp``."""
        ...


class RemoteFetch(NamedTuple):
    """A partition of a fetch that has to be read from remote storage, within ``bytes_max``."""

    fetched: FetchedPartition
    partition: Partition
    bytes_max: int


async def read_remote(
    reader: RemoteReader, fetches: Sequence[RemoteFetch], rows: Sequence[Row], *, is_committed: bool
) -> None:
    """Put records or an error into the rows, which are in the order of ``fetches``."""
    if reader.is_throttled:
        return
    futures = [
        reader.fetch(
            each.partition,
            each.fetched.requested.offset,
            each.bytes_max,
            is_committed=is_committed,
        )
        for each in fetches
    ]
    try:
        await asyncio.wait(futures, timeout=reader.fetch_wait_ms / 1000)
    except asyncio.CancelledError:
        for future in futures:
            future.cancel()  # nobody waits for the results any more
        raise
    for future, row in zip(futures, rows, strict=True):
        if not future.done():
            future.cancel()
            continue
        try:
            found = future.result()
        except Fault as fault:
            row.error = fault.code
        except asyncio.CancelledError:
            row.error = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            row.data, row.aborted = found.data, found.aborted
