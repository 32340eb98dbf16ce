"""DescribeProducers: the messages of api key 61, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema, array_of


class TopicRequest(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partition_indexes", array_of(INT32), (0, 0)),
        ),
    )


class DescribeProducersRequest(Message):
    """DescribeProducers request, versions 0-0, flexible from 0."""

    topics: list[TopicRequest] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=61,
        fields=(Field("topics", array_of(TopicRequest), (0, 0)),),
    )


class ProducerState(Message):
    """Part of the message, in versions 0-0."""

    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("producer_id", INT64, (0, 0)),
            Field("producer_epoch", INT32, (0, 0)),
            Field("last_sequence", INT32, (0, 0)),
            Field("last_timestamp", INT64, (0, 0)),
            Field("coordinator_epoch", INT32, (0, 0)),
            Field("current_txn_start_offset", INT64, (0, 0)),
        ),
    )


class PartitionResponse(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("active_producers", array_of(ProducerState), (0, 0)),
        ),
    )


class TopicResponse(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partitions: list[PartitionResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", array_of(PartitionResponse), (0, 0)),
        ),
    )


class DescribeProducersResponse(Message):
    """DescribeProducers response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    topics: list[TopicResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=61,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("topics", array_of(TopicResponse), (0, 0)),
        ),
    )
