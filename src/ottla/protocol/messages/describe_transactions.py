"""DescribeTransactions: the messages of api key 65, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema, array_of


class DescribeTransactionsRequest(Message):
    """DescribeTransactions request, versions 0-0, flexible from 0."""

    transactional_ids: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=65,
        fields=(Field("transactional_ids", array_of(STRING), (0, 0)),),
    )


class TopicData(Message):
    """Part of the message, in versions 0-0."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class TransactionState(Message):
    """Part of the message, in versions 0-0."""

    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 0)),
            Field("transactional_id", STRING, (0, 0)),
            Field("transaction_state", STRING, (0, 0)),
            Field("transaction_timeout_ms", INT32, (0, 0)),
            Field("transaction_start_time_ms", INT64, (0, 0)),
            Field("producer_id", INT64, (0, 0)),
            Field("producer_epoch", INT16, (0, 0)),
            Field("topics", array_of(TopicData), (0, 0)),
        ),
    )


class DescribeTransactionsResponse(Message):
    """DescribeTransactions response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=65,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("transaction_states", array_of(TransactionState), (0, 0)),
        ),
    )
