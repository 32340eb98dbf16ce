"""ConsumerGroupDescribe: the messages of api key 69, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT8,
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


class ConsumerGroupDescribeRequest(Message):
    """ConsumerGroupDescribe request, versions 0-1, flexible from 0."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=69,
        fields=(
            Field("group_ids", array_of(STRING), (0, 1)),
            Field("include_authorized_operations", BOOL, (0, 1)),
        ),
    )


class TopicPartitions(Message):
    """Part of the message, in versions 0-1."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 1)),
            Field("topic_name", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 0-1."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("topic_partitions", array_of(TopicPartitions), (0, 1)),),
    )


class Member(Message):
    """Part of the message, in versions 0-1."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 1)),
            Field("instance_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rack_id", STRING, (0, 1), nullable=(0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("client_id", STRING, (0, 1)),
            Field("client_host", STRING, (0, 1)),
            Field("subscribed_topic_names", array_of(STRING), (0, 1)),
            Field("subscribed_topic_regex", STRING, (0, 1), nullable=(0, 1)),
            Field("assignment", struct_of(Assignment), (0, 1)),
            Field("target_assignment", struct_of(Assignment), (0, 1)),
            Field("member_type", INT8, (1, 1)),
        ),
    )


class DescribedGroup(Message):
    """Part of the message, in versions 0-1."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("group_id", STRING, (0, 1)),
            Field("group_state", STRING, (0, 1)),
            Field("group_epoch", INT32, (0, 1)),
            Field("assignment_epoch", INT32, (0, 1)),
            Field("assignor_name", STRING, (0, 1)),
            Field("members", array_of(Member), (0, 1)),
            Field("authorized_operations", INT32, (0, 1)),
        ),
    )


class ConsumerGroupDescribeResponse(Message):
    """ConsumerGroupDescribe response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=69,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("groups", array_of(DescribedGroup), (0, 1)),
        ),
    )
