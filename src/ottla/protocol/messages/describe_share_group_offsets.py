"""DescribeShareGroupOffsets: the messages of api key 90, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class DescribeShareGroupOffsetsRequestTopic(Message):
    """Part of the message, in versions 0-1."""

    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class DescribeShareGroupOffsetsRequestGroup(Message):
    """Part of the message, in versions 0-1."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (0, 1)),
            Field(
                "topics", array_of(DescribeShareGroupOffsetsRequestTopic), (0, 1), nullable=(0, 1)
            ),
        ),
    )


class DescribeShareGroupOffsetsRequest(Message):
    """DescribeShareGroupOffsets request, versions 0-1, flexible from 0."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=90,
        fields=(Field("groups", array_of(DescribeShareGroupOffsetsRequestGroup), (0, 1)),),
    )


class DescribeShareGroupOffsetsResponsePartition(Message):
    """Part of the message, in versions 0-1."""

    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = -1
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 1)),
            Field("start_offset", INT64, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
            Field("lag", INT64, (1, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class DescribeShareGroupOffsetsResponseTopic(Message):
    """Part of the message, in versions 0-1."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 1)),
            Field("topic_id", UUID, (0, 1)),
            Field("partitions", array_of(DescribeShareGroupOffsetsResponsePartition), (0, 1)),
        ),
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    """Part of the message, in versions 0-1."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (0, 1)),
            Field("topics", array_of(DescribeShareGroupOffsetsResponseTopic), (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class DescribeShareGroupOffsetsResponse(Message):
    """DescribeShareGroupOffsets response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=90,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("groups", array_of(DescribeShareGroupOffsetsResponseGroup), (0, 1)),
        ),
    )
