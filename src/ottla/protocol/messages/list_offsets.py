"""ListOffsets: the messages of api key 2, versions 1-11.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

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


class ListOffsetsPartition(Message):
    """Part of the message, in versions 1-11."""

    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 11)),
            Field("current_leader_epoch", INT32, (4, 11)),
            Field("timestamp", INT64, (1, 11)),
        ),
    )


class ListOffsetsTopic(Message):
    """Part of the message, in versions 1-11."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 11)),
            Field("partitions", array_of(ListOffsetsPartition), (1, 11)),
        ),
    )


class ListOffsetsRequest(Message):
    """ListOffsets request, versions 1-11, flexible from 6."""

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 11),
        flexible=6,
        api_key=2,
        fields=(
            Field("replica_id", INT32, (1, 11)),
            Field("isolation_level", INT8, (2, 11)),
            Field("topics", array_of(ListOffsetsTopic), (1, 11)),
            Field("timeout_ms", INT32, (10, 11)),
        ),
    )


class ListOffsetsPartitionResponse(Message):
    """Part of the message, in versions 1-11."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 11)),
            Field("error_code", INT16, (1, 11)),
            Field("timestamp", INT64, (1, 11)),
            Field("offset", INT64, (1, 11)),
            Field("leader_epoch", INT32, (4, 11)),
        ),
    )


class ListOffsetsTopicResponse(Message):
    """Part of the message, in versions 1-11."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 11)),
            Field("partitions", array_of(ListOffsetsPartitionResponse), (1, 11)),
        ),
    )


class ListOffsetsResponse(Message):
    """ListOffsets response, versions 1-11, flexible from 6."""

    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 11),
        flexible=6,
        api_key=2,
        fields=(
            Field("throttle_time_ms", INT32, (2, 11)),
            Field("topics", array_of(ListOffsetsTopicResponse), (1, 11)),
        ),
    )
