"""ConsumerGroupHeartbeat: the messages of api key 68, versions 0-1.

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


class RequestTopicPartitions(Message):
    """Part of the message, in versions 0-1."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class ConsumerGroupHeartbeatRequest(Message):
    """ConsumerGroupHeartbeat request, versions 0-1, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[RequestTopicPartitions] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=68,
        fields=(
            Field("group_id", STRING, (0, 1)),
            Field("member_id", STRING, (0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("instance_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rack_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rebalance_timeout_ms", INT32, (0, 1)),
            Field("subscribed_topic_names", array_of(STRING), (0, 1), nullable=(0, 1)),
            Field("subscribed_topic_regex", STRING, (1, 1), nullable=(1, 1)),
            Field("server_assignor", STRING, (0, 1), nullable=(0, 1)),
            Field("topic_partitions", array_of(RequestTopicPartitions), (0, 1), nullable=(0, 1)),
        ),
    )


class ResponseTopicPartitions(Message):
    """Part of the message, in versions 0-1."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 0-1."""

    topic_partitions: list[ResponseTopicPartitions] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("topic_partitions", array_of(ResponseTopicPartitions), (0, 1)),),
    )


class ConsumerGroupHeartbeatResponse(Message):
    """ConsumerGroupHeartbeat response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=68,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("member_id", STRING, (0, 1), nullable=(0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("heartbeat_interval_ms", INT32, (0, 1)),
            Field("assignment", struct_of(Assignment), (0, 1), nullable=(0, 1)),
        ),
    )
