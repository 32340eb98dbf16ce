"""AddPartitionsToTxn: the messages of api key 24, versions 0-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class AddPartitionsToTxnTopic(Message):
    """Part of the message, in versions 0-5."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 5)),
            Field("partitions", array_of(INT32), (0, 5)),
        ),
    )


class AddPartitionsToTxnTransaction(Message):
    """Part of the message, in versions 4-5."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("transactional_id", STRING, (4, 5)),
            Field("producer_id", INT64, (4, 5)),
            Field("producer_epoch", INT16, (4, 5)),
            Field("verify_only", BOOL, (4, 5)),
            Field("topics", array_of(AddPartitionsToTxnTopic), (4, 5)),
        ),
    )


class AddPartitionsToTxnRequest(Message):
    """AddPartitionsToTxn request, versions 0-5, flexible from 3."""

    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)
    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=24,
        fields=(
            Field("v3_and_below_transactional_id", STRING, (0, 3)),
            Field("v3_and_below_producer_id", INT64, (0, 3)),
            Field("v3_and_below_producer_epoch", INT16, (0, 3)),
            Field("v3_and_below_topics", array_of(AddPartitionsToTxnTopic), (0, 3)),
            Field("transactions", array_of(AddPartitionsToTxnTransaction), (4, 5)),
        ),
    )


class AddPartitionsToTxnPartitionResult(Message):
    """Part of the message, in versions 0-5."""

    partition_index: int = 0
    partition_error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 5)),
            Field("partition_error_code", INT16, (0, 5)),
        ),
    )


class AddPartitionsToTxnTopicResult(Message):
    """Part of the message, in versions 0-5."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 5)),
            Field("results_by_partition", array_of(AddPartitionsToTxnPartitionResult), (0, 5)),
        ),
    )


class AddPartitionsToTxnResult(Message):
    """Part of the message, in versions 4-5."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("transactional_id", STRING, (4, 5)),
            Field("topic_results", array_of(AddPartitionsToTxnTopicResult), (4, 5)),
        ),
    )


class AddPartitionsToTxnResponse(Message):
    """AddPartitionsToTxn response, versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=24,
        fields=(
            Field("throttle_time_ms", INT32, (0, 5)),
            Field("results_by_topic_v3_and_below", array_of(AddPartitionsToTxnTopicResult), (0, 3)),
            Field("error_code", INT16, (4, 5)),
            Field("results_by_transaction", array_of(AddPartitionsToTxnResult), (4, 5)),
        ),
    )
