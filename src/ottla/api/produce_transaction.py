"""What of a Produce request belongs to a transaction, and how its refusal is told. Pure."""

from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.api.produce_reply import PartitionResult
from ottla.api.produce_request import ProduceBody
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from ottla.protocol.types import TopicPartition, Uuid

ADDING_VERSION_FIRST: Final = 12
"""From here on a transactional produce adds its partition to the transaction (KIP-890)."""

ABORTABLE_VERSION_FIRST: Final = 11
"""Before it, a client knows a transaction that it has to abort by INVALID_TXN_STATE."""


# What an older client would not try again is told as something that it does.
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class InTransaction(NamedTuple):
    """The part of a request that has to be known to a transaction before it is appended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    may_add: bool
    """Whether the partitions are added to the transaction; else they are to be in it."""


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transaction (KIP-890)."""

    def verify(self, wanted: InTransaction) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Return what is wrong, by partition; nothing for those that may be appended to."""
        ...


class Busy(NamedTuple):
    """What requests queued behind a refused one are refused, too: a transaction that is busy."""

    transaction: InTransaction
    refused: Mapping[TopicPartition, ErrorCode]


def transactional_batches(produce: ProduceBody) -> list[tuple[str | Uuid, int, BatchHeader]]:
    """Return the batches that say they belong to a transaction."""
    return [
        (topic, index, header)
        for topic, partitions in produce.topics
        for index, records in partitions
        if records is not None
        and len(records) >= HEADER_BYTES
        and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL
        and (header := _header(records)) is not None
    ]


def _header(records: memoryview) -> BatchHeader | None:
    """Return the header of what may be a batch; whoever appends it says what is wrong with it."""
    try:
        return read_header(records)
    except (CorruptBatch, UnsupportedMagic):
        return None


def told_to_producer(code: ErrorCode, version: int) -> ErrorCode:
    """Return a coordinator's error as a client of the version knows it."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION_FIRST:
        return ErrorCode.INVALID_TXN_STATE
    return code


def unverified_result(index: int, error: ErrorCode, version: int) -> PartitionResult:
    """Say that a batch was not appended for its transaction's sake."""
    if error is ErrorCode.INVALID_TXN_STATE:
        reason = "The partition is not part of the transaction."
        return PartitionResult(index, error, error_message=reason)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDING_VERSION_FIRST:
        return PartitionResult(index, error)
    if error in TRY_AGAIN:
        reason = f"The transaction could not be verified: {error.name}."
        return PartitionResult(index, ErrorCode.NOT_ENOUGH_REPLICAS, error_message=reason)
    return PartitionResult(index, error)
