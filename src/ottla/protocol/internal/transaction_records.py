"""Records of ``__transaction_state``: the last record of a transactional id is its state."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from msgspec import field

from ottla.protocol.internal.framing import CoordinatorRecord, Pair, decode_pair
from ottla.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import Buffer


class TransactionLogKey(Message):
    """The transactional id.

    Version 0.
    """

    transactional_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=0,
        fields=(Field("transactional_id", STRING, (0, 0)),),
    )


class PartitionsSchema(Message):
    """Part of `TransactionLogValue`."""

    topic: str = ""
    partition_ids: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 1)),
            Field("partition_ids", array_of(INT32), (0, 1)),
        ),
    )


class TransactionLogValue(Message):
    """The state of a transactional id and the partitions of its open transaction.

    Versions 0-1, flexible from 1.
    """

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[PartitionsSchema] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=0,
        fields=(
            Field("producer_id", INT64, (0, 1)),
            Field("previous_producer_id", INT64, (1, 1), tag=0, tagged=(1, 1)),
            Field("next_producer_id", INT64, (1, 1), tag=1, tagged=(1, 1)),
            Field("producer_epoch", INT16, (0, 1)),
            Field("next_producer_epoch", INT16, (1, 1), tag=3, tagged=(1, 1)),
            Field("transaction_timeout_ms", INT32, (0, 1)),
            Field("transaction_status", INT8, (0, 1)),
            Field("transaction_partitions", array_of(PartitionsSchema), (0, 1), nullable=(0, 1)),
            Field("transaction_last_update_timestamp_ms", INT64, (0, 1)),
            Field("transaction_start_timestamp_ms", INT64, (0, 1)),
            Field("client_transaction_version", INT16, (1, 1), tag=2, tagged=(1, 1)),
        ),
    )


TRANSACTION_RECORDS: Mapping[int, Pair] = MappingProxyType(
    {
        0: Pair(TransactionLogKey, TransactionLogValue),
    }
)


def decode_transaction_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord:
    """Read a record of ``__transaction_state``. Raises `ProtocolFault`."""
    return decode_pair(TRANSACTION_RECORDS, key, value)
