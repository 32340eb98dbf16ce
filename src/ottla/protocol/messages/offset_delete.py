"""OffsetDelete: the messages of api key 47, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class OffsetDeleteRequestPartition(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("partition_index", INT32, (0, 0)),),
    )


class OffsetDeleteRequestTopic(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", array_of(OffsetDeleteRequestPartition), (0, 0)),
        ),
    )


class OffsetDeleteRequest(Message):
    """OffsetDelete request, versions 0-0, never flexible."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=None,
        api_key=47,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topics", array_of(OffsetDeleteRequestTopic), (0, 0)),
        ),
    )


class OffsetDeleteResponsePartition(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
        ),
    )


class OffsetDeleteResponseTopic(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", array_of(OffsetDeleteResponsePartition), (0, 0)),
        ),
    )


class OffsetDeleteResponse(Message):
    """OffsetDelete response, versions 0-0, never flexible."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=None,
        api_key=47,
        fields=(
            Field("error_code", INT16, (0, 0)),
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("topics", array_of(OffsetDeleteResponseTopic), (0, 0)),
        ),
    )
