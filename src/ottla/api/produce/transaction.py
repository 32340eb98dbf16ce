"""The transactional part of a Produce request and the results of rejected batches. Pure."""

from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.api.produce.reply import PartitionResult
from ottla.api.produce.request import ProduceBody
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
"""Older clients know a transaction that must be aborted by INVALID_TXN_STATE."""


# Retriable errors; older clients get a code in their place that they do retry.
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
    """The partitions of a request that must be part of a transaction before it is appended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    may_add: bool
    """Whether missing partitions are added to the transaction; if not, they are an error."""


class TransactionVerifier(Protocol):
    """Verifies partitions with the coordinator of a transaction (KIP-890)."""

    def verify(self, transaction: InTransaction) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Return the errors by partition; partitions that may be appended to are left out."""
        ...


class Busy(NamedTuple):
    """The retriable errors of a request, which requests queued behind it get as well."""

    transaction: InTransaction
    rejected: Mapping[TopicPartition, ErrorCode]


def transactional_batches(produce: ProduceBody) -> list[tuple[str | Uuid, int, BatchHeader]]:
    """Return the batches that are marked as transactional."""
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
    """Return the header; None for a malformed batch, whose error the append returns."""
    try:
        return read_header(records)
    except (CorruptBatch, UnsupportedMagic):
        return None


def producer_error(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error for a client of this version that stands for a coordinator's error."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION_FIRST:
        return ErrorCode.INVALID_TXN_STATE
    return code


def rejected_result(index: int, error: ErrorCode, version: int) -> PartitionResult:
    """Return the result of a batch that was rejected before it reached its partition."""
    if error is ErrorCode.INVALID_TXN_STATE:
        reason = "The partition is not part of the transaction."
        return PartitionResult(index, error, error_message=reason)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDING_VERSION_FIRST:
        return PartitionResult(index, error)
    if error in TRY_AGAIN:
        reason = f"The transaction could not be verified: {error.name}."
        return PartitionResult(index, ErrorCode.NOT_ENOUGH_REPLICAS, error_message=reason)
    return PartitionResult(index, error)
