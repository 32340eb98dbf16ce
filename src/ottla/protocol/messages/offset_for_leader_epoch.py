"""OffsetForLeaderEpoch: the messages of api key 23, versions 2-4.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema, array_of


class OffsetForLeaderPartition(Message):
    """Part of the message, in versions 2-4."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (2, 4)),
            Field("current_leader_epoch", INT32, (2, 4)),
            Field("leader_epoch", INT32, (2, 4)),
        ),
    )


class OffsetForLeaderTopic(Message):
    """Part of the message, in versions 2-4."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (2, 4)),
            Field("partitions", array_of(OffsetForLeaderPartition), (2, 4)),
        ),
    )


class OffsetForLeaderEpochRequest(Message):
    """OffsetForLeaderEpoch request, versions 2-4, flexible from 4."""

    replica_id: int = -2
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 4),
        flexible=4,
        api_key=23,
        fields=(
            Field("replica_id", INT32, (3, 4)),
            Field("topics", array_of(OffsetForLeaderTopic), (2, 4)),
        ),
    )


class EpochEndOffset(Message):
    """Part of the message, in versions 2-4."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (2, 4)),
            Field("partition", INT32, (2, 4)),
            Field("leader_epoch", INT32, (2, 4)),
            Field("end_offset", INT64, (2, 4)),
        ),
    )


class OffsetForLeaderTopicResult(Message):
    """Part of the message, in versions 2-4."""

    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (2, 4)),
            Field("partitions", array_of(EpochEndOffset), (2, 4)),
        ),
    )


class OffsetForLeaderEpochResponse(Message):
    """OffsetForLeaderEpoch response, versions 2-4, flexible from 4."""

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 4),
        flexible=4,
        api_key=23,
        fields=(
            Field("throttle_time_ms", INT32, (2, 4)),
            Field("topics", array_of(OffsetForLeaderTopicResult), (2, 4)),
        ),
    )
