"""TxnOffsetCommit: the messages of api key 28, versions 0-6.

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


class TxnOffsetCommitRequestPartition(Message):
    """Part of the message, in versions 0-6."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 6)),
            Field("committed_offset", INT64, (0, 6)),
            Field("committed_leader_epoch", INT32, (2, 6)),
            Field("committed_metadata", STRING, (0, 6), nullable=(0, 6)),
        ),
    )


class TxnOffsetCommitRequestTopic(Message):
    """Part of the message, in versions 0-6."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 5)),
            Field("topic_id", UUID, (6, 6)),
            Field("partitions", array_of(TxnOffsetCommitRequestPartition), (0, 6)),
        ),
    )


class TxnOffsetCommitRequest(Message):
    """TxnOffsetCommit request, versions 0-6, flexible from 3."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=3,
        api_key=28,
        fields=(
            Field("transactional_id", STRING, (0, 6)),
            Field("group_id", STRING, (0, 6)),
            Field("producer_id", INT64, (0, 6)),
            Field("producer_epoch", INT16, (0, 6)),
            Field("generation_id_or_member_epoch", INT32, (3, 6)),
            Field("member_id", STRING, (3, 6)),
            Field("group_instance_id", STRING, (3, 6), nullable=(3, 6)),
            Field("topics", array_of(TxnOffsetCommitRequestTopic), (0, 6)),
        ),
    )


class TxnOffsetCommitResponsePartition(Message):
    """Part of the message, in versions 0-6."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 6)),
            Field("error_code", INT16, (0, 6)),
        ),
    )


class TxnOffsetCommitResponseTopic(Message):
    """Part of the message, in versions 0-6."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 5)),
            Field("topic_id", UUID, (6, 6)),
            Field("partitions", array_of(TxnOffsetCommitResponsePartition), (0, 6)),
        ),
    )


class TxnOffsetCommitResponse(Message):
    """TxnOffsetCommit response, versions 0-6, flexible from 3."""

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=3,
        api_key=28,
        fields=(
            Field("throttle_time_ms", INT32, (0, 6)),
            Field("topics", array_of(TxnOffsetCommitResponseTopic), (0, 6)),
        ),
    )
