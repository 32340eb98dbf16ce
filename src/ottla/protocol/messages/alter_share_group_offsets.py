"""AlterShareGroupOffsets: the messages of api key 91, versions 0-0.

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


class AlterShareGroupOffsetsRequestPartition(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    start_offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
        ),
    )


class AlterShareGroupOffsetsRequestTopic(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 0)),
            Field("partitions", array_of(AlterShareGroupOffsetsRequestPartition), (0, 0)),
        ),
    )


class AlterShareGroupOffsetsRequest(Message):
    """AlterShareGroupOffsets request, versions 0-0, flexible from 0."""

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=91,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topics", array_of(AlterShareGroupOffsetsRequestTopic), (0, 0)),
        ),
    )


class AlterShareGroupOffsetsResponsePartition(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class AlterShareGroupOffsetsResponseTopic(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 0)),
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(AlterShareGroupOffsetsResponsePartition), (0, 0)),
        ),
    )


class AlterShareGroupOffsetsResponse(Message):
    """AlterShareGroupOffsets response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=91,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("responses", array_of(AlterShareGroupOffsetsResponseTopic), (0, 0)),
        ),
    )
