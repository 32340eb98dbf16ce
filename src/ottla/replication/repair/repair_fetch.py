"""Fetches batches from any other replica, for a repair.

As a consumer: any replica answers, up to its high watermark, and no leader counts it as progress.
As the debugging replica -2, if there is no other leader to ask: a replica answers up to the end of
its log.
"""

import enum
from collections.abc import AsyncIterator
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.types import NO_EPOCH, Offset
from ottla.replication.fetching.fetcher_loop import EARLIEST, BrokerConnection
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import CONSUMER, DEBUGGER
from ottla.replication.repair.repair_sources import sound_batches

FETCH_BYTES: Final = 1 << 20
TIMEOUT_MS: Final = 30_000


class Outcome(enum.Enum):
    """The result of an attempt to repair one range."""

    REPAIRED = "repaired"
    GONE = "the damaged range is no longer part of the log"
    NO_SOUND_COPY = "no replica has a sound copy"
    NOT_REACHED = "a replica could not be reached"


class UnusableCopy(Fault):
    """A replica that has the offsets but whose bytes cannot replace the damaged ones."""

    code = ErrorCode.CORRUPT_MESSAGE


class OtherLength(UnusableCopy):
    """A sound copy with more or fewer bytes than the damaged ones."""


class ReplicaNotAnswering(Fault):
    """A replica that cannot answer now; retried later."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


async def fetch_batches(
    connection: BrokerConnection,
    partition: Partition,
    start: Offset,
    end: Offset,
    replica_id: int = CONSUMER,
    *,
    base_min: Offset | None = None,
) -> AsyncIterator[bytes]:
    """Yield the sound batches of ``[start, end)``, in the order of their offsets.

    The first may begin before ``start``, from ``base_min`` on, where that is given.

    Raises:
        CorruptBatch, UnsupportedMagic, UnusableCopy: the replica has no sound copy.
        ReplicaNotAnswering, OSError: it cannot be asked.
    """
    offset, is_last = start, False
    while not is_last:
        records = await _fetch_at(connection, partition, offset, replica_id)
        piece = sound_batches(records, offset, end, base_min=base_min)
        if not piece.batches and not piece.is_last:
            raise UnusableCopy(f"no records at offset {offset}")
        for batch in piece.batches:
            yield bytes(batch)
        offset, is_last, base_min = piece.expected, piece.is_last, None


async def _fetch_at(
    connection: BrokerConnection, partition: Partition, offset: Offset, replica_id: int
) -> bytes:
    asked = FetchPartition(
        partition=partition.index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(replica_id, -1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(partition.topic, partition.topic_id, [asked])],
    )
    response = await connection.send(request, timeout_ms=TIMEOUT_MS)
    assert isinstance(response, FetchResponse)
    for row in (each for topic in response.responses for each in topic.partitions):
        error = ErrorCode(row.error_code)
        if error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise UnusableCopy(f"offset {offset}: {error.name}")
        if error is not ErrorCode.NONE:
            raise ReplicaNotAnswering(f"offset {offset}: {error.name}")
        return bytes(row.records or b"")
    raise ReplicaNotAnswering(f"offset {offset}: no answer")


async def fetch_offset(
    connection: BrokerConnection, partition: Partition, timestamp: int = EARLIEST
) -> Offset:
    """Return the start (or with ``LATEST`` the end) of the replica's log.

    Raises:
        ReplicaNotAnswering, OSError: it cannot be asked.
    """
    asked = ListOffsetsPartition(partition.index, NO_EPOCH, timestamp)
    request = ListOffsetsRequest(
        replica_id=DEBUGGER, topics=[ListOffsetsTopic(partition.topic, [asked])]
    )
    response = await connection.send(request, timeout_ms=TIMEOUT_MS)
    assert isinstance(response, ListOffsetsResponse)
    for row in (each for topic in response.topics for each in topic.partitions):
        if row.error_code == ErrorCode.NONE and row.offset >= 0:
            return Offset(row.offset)
    raise ReplicaNotAnswering("the range of its log is not known")
