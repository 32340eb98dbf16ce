"""ListTransactions: the messages of api key 66, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema, array_of


class ListTransactionsRequest(Message):
    """ListTransactions request, versions 0-2, flexible from 0."""

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1
    transactional_id_pattern: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=66,
        fields=(
            Field("state_filters", array_of(STRING), (0, 2)),
            Field("producer_id_filters", array_of(INT64), (0, 2)),
            Field("duration_filter", INT64, (1, 2)),
            Field("transactional_id_pattern", STRING, (2, 2), nullable=(2, 2)),
        ),
    )


class TransactionState(Message):
    """Part of the message, in versions 0-2."""

    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("transactional_id", STRING, (0, 2)),
            Field("producer_id", INT64, (0, 2)),
            Field("transaction_state", STRING, (0, 2)),
        ),
    )


class ListTransactionsResponse(Message):
    """ListTransactions response, versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=66,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("unknown_state_filters", array_of(STRING), (0, 2)),
            Field("transaction_states", array_of(TransactionState), (0, 2)),
        ),
    )
