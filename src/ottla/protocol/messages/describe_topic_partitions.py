"""DescribeTopicPartitions: the messages of api key 75, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class TopicRequest(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("name", STRING, (0, 0)),),
    )


class RequestCursor(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    partition_index: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 0)),
            Field("partition_index", INT32, (0, 0)),
        ),
    )


class DescribeTopicPartitionsRequest(Message):
    """DescribeTopicPartitions request, versions 0-0, flexible from 0."""

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: RequestCursor | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=75,
        fields=(
            Field("topics", array_of(TopicRequest), (0, 0)),
            Field("response_partition_limit", INT32, (0, 0)),
            Field("cursor", struct_of(RequestCursor), (0, 0), nullable=(0, 0)),
        ),
    )


class DescribeTopicPartitionsResponsePartition(Message):
    """Part of the message, in versions 0-0."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 0)),
            Field("partition_index", INT32, (0, 0)),
            Field("leader_id", INT32, (0, 0)),
            Field("leader_epoch", INT32, (0, 0)),
            Field("replica_nodes", array_of(INT32), (0, 0)),
            Field("isr_nodes", array_of(INT32), (0, 0)),
            Field("eligible_leader_replicas", array_of(INT32), (0, 0), nullable=(0, 0)),
            Field("last_known_elr", array_of(INT32), (0, 0), nullable=(0, 0)),
            Field("offline_replicas", array_of(INT32), (0, 0)),
        ),
    )


class DescribeTopicPartitionsResponseTopic(Message):
    """Part of the message, in versions 0-0."""

    error_code: int = 0
    name: str | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 0)),
            Field("name", STRING, (0, 0), nullable=(0, 0)),
            Field("topic_id", UUID, (0, 0)),
            Field("is_internal", BOOL, (0, 0)),
            Field("partitions", array_of(DescribeTopicPartitionsResponsePartition), (0, 0)),
            Field("topic_authorized_operations", INT32, (0, 0)),
        ),
    )


class ResponseCursor(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    partition_index: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 0)),
            Field("partition_index", INT32, (0, 0)),
        ),
    )


class DescribeTopicPartitionsResponse(Message):
    """DescribeTopicPartitions response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: ResponseCursor | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=75,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("topics", array_of(DescribeTopicPartitionsResponseTopic), (0, 0)),
            Field("next_cursor", struct_of(ResponseCursor), (0, 0), nullable=(0, 0)),
        ),
    )
