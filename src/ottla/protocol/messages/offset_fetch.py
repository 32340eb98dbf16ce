"""OffsetFetch: the messages of api key 9, versions 1-10.

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
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class OffsetFetchRequestTopic(Message):
    """Part of the message, in versions 1-7."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 7)),
            Field("partition_indexes", array_of(INT32), (1, 7)),
        ),
    )


class OffsetFetchRequestTopics(Message):
    """Part of the message, in versions 8-10."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partition_indexes: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (8, 9)),
            Field("topic_id", UUID, (10, 10)),
            Field("partition_indexes", array_of(INT32), (8, 10)),
        ),
    )


class OffsetFetchRequestGroup(Message):
    """Part of the message, in versions 8-10."""

    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (8, 10)),
            Field("member_id", STRING, (9, 10), nullable=(9, 10)),
            Field("member_epoch", INT32, (9, 10)),
            Field("topics", array_of(OffsetFetchRequestTopics), (8, 10), nullable=(8, 10)),
        ),
    )


class OffsetFetchRequest(Message):
    """OffsetFetch request, versions 1-10, flexible from 6."""

    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)
    require_stable: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 10),
        flexible=6,
        api_key=9,
        fields=(
            Field("group_id", STRING, (1, 7)),
            Field("topics", array_of(OffsetFetchRequestTopic), (1, 7), nullable=(2, 7)),
            Field("groups", array_of(OffsetFetchRequestGroup), (8, 10)),
            Field("require_stable", BOOL, (7, 10)),
        ),
    )


class OffsetFetchResponsePartition(Message):
    """Part of the message, in versions 1-7."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 7)),
            Field("committed_offset", INT64, (1, 7)),
            Field("committed_leader_epoch", INT32, (5, 7)),
            Field("metadata", STRING, (1, 7), nullable=(1, 7)),
            Field("error_code", INT16, (1, 7)),
        ),
    )


class OffsetFetchResponseTopic(Message):
    """Part of the message, in versions 1-7."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 7)),
            Field("partitions", array_of(OffsetFetchResponsePartition), (1, 7)),
        ),
    )


class OffsetFetchResponsePartitions(Message):
    """Part of the message, in versions 8-10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (8, 10)),
            Field("committed_offset", INT64, (8, 10)),
            Field("committed_leader_epoch", INT32, (8, 10)),
            Field("metadata", STRING, (8, 10), nullable=(8, 10)),
            Field("error_code", INT16, (8, 10)),
        ),
    )


class OffsetFetchResponseTopics(Message):
    """Part of the message, in versions 8-10."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (8, 9)),
            Field("topic_id", UUID, (10, 10)),
            Field("partitions", array_of(OffsetFetchResponsePartitions), (8, 10)),
        ),
    )


class OffsetFetchResponseGroup(Message):
    """Part of the message, in versions 8-10."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (8, 10)),
            Field("topics", array_of(OffsetFetchResponseTopics), (8, 10)),
            Field("error_code", INT16, (8, 10)),
        ),
    )


class OffsetFetchResponse(Message):
    """OffsetFetch response, versions 1-10, flexible from 6."""

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 10),
        flexible=6,
        api_key=9,
        fields=(
            Field("throttle_time_ms", INT32, (3, 10)),
            Field("topics", array_of(OffsetFetchResponseTopic), (1, 7)),
            Field("error_code", INT16, (2, 7)),
            Field("groups", array_of(OffsetFetchResponseGroup), (8, 10)),
        ),
    )
