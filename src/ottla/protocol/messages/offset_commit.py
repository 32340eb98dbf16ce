"""OffsetCommit: the messages of api key 8, versions 2-10.

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


class OffsetCommitRequestPartition(Message):
    """Part of the message, in versions 2-10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (2, 10)),
            Field("committed_offset", INT64, (2, 10)),
            Field("committed_leader_epoch", INT32, (6, 10)),
            Field("committed_metadata", STRING, (2, 10), nullable=(2, 10)),
        ),
    )


class OffsetCommitRequestTopic(Message):
    """Part of the message, in versions 2-10."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 9)),
            Field("topic_id", UUID, (10, 10)),
            Field("partitions", array_of(OffsetCommitRequestPartition), (2, 10)),
        ),
    )


class OffsetCommitRequest(Message):
    """OffsetCommit request, versions 2-10, flexible from 8."""

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    retention_time_ms: int = -1
    group_instance_id: str | None = None
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 10),
        flexible=8,
        api_key=8,
        fields=(
            Field("group_id", STRING, (2, 10)),
            Field("generation_id_or_member_epoch", INT32, (2, 10)),
            Field("member_id", STRING, (2, 10)),
            Field("retention_time_ms", INT64, (2, 4)),
            Field("group_instance_id", STRING, (7, 10), nullable=(7, 10)),
            Field("topics", array_of(OffsetCommitRequestTopic), (2, 10)),
        ),
    )


class OffsetCommitResponsePartition(Message):
    """Part of the message, in versions 2-10."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (2, 10)),
            Field("error_code", INT16, (2, 10)),
        ),
    )


class OffsetCommitResponseTopic(Message):
    """Part of the message, in versions 2-10."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 9)),
            Field("topic_id", UUID, (10, 10)),
            Field("partitions", array_of(OffsetCommitResponsePartition), (2, 10)),
        ),
    )


class OffsetCommitResponse(Message):
    """OffsetCommit response, versions 2-10, flexible from 8."""

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 10),
        flexible=8,
        api_key=8,
        fields=(
            Field("throttle_time_ms", INT32, (3, 10)),
            Field("topics", array_of(OffsetCommitResponseTopic), (2, 10)),
        ),
    )
