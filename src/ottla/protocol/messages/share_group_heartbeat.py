"""ShareGroupHeartbeat: the messages of api key 76, versions 1-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
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


class ShareGroupHeartbeatRequest(Message):
    """ShareGroupHeartbeat request, versions 1-1, flexible from 1."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 1),
        flexible=1,
        api_key=76,
        fields=(
            Field("group_id", STRING, (1, 1)),
            Field("member_id", STRING, (1, 1)),
            Field("member_epoch", INT32, (1, 1)),
            Field("rack_id", STRING, (1, 1), nullable=(1, 1)),
            Field("subscribed_topic_names", array_of(STRING), (1, 1), nullable=(1, 1)),
        ),
    )


class TopicPartitions(Message):
    """Part of the message, in versions 1-1."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (1, 1)),
            Field("partitions", array_of(INT32), (1, 1)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 1-1."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("topic_partitions", array_of(TopicPartitions), (1, 1)),),
    )


class ShareGroupHeartbeatResponse(Message):
    """ShareGroupHeartbeat response, versions 1-1, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 1),
        flexible=1,
        api_key=76,
        fields=(
            Field("throttle_time_ms", INT32, (1, 1)),
            Field("error_code", INT16, (1, 1)),
            Field("error_message", STRING, (1, 1), nullable=(1, 1)),
            Field("member_id", STRING, (1, 1), nullable=(1, 1)),
            Field("member_epoch", INT32, (1, 1)),
            Field("heartbeat_interval_ms", INT32, (1, 1)),
            Field("assignment", struct_of(Assignment), (1, 1), nullable=(1, 1)),
        ),
    )
