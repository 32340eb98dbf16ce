"""ShareGroupDescribe: the messages of api key 77, versions 1-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
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


class ShareGroupDescribeRequest(Message):
    """ShareGroupDescribe request, versions 1-1, flexible from 1."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 1),
        flexible=1,
        api_key=77,
        fields=(
            Field("group_ids", array_of(STRING), (1, 1)),
            Field("include_authorized_operations", BOOL, (1, 1)),
        ),
    )


class TopicPartitions(Message):
    """Part of the message, in versions 1-1."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (1, 1)),
            Field("topic_name", STRING, (1, 1)),
            Field("partitions", array_of(INT32), (1, 1)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 1-1."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("topic_partitions", array_of(TopicPartitions), (1, 1)),),
    )


class Member(Message):
    """Part of the message, in versions 1-1."""

    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    assignment: Assignment = field(default_factory=Assignment)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (1, 1)),
            Field("rack_id", STRING, (1, 1), nullable=(1, 1)),
            Field("member_epoch", INT32, (1, 1)),
            Field("client_id", STRING, (1, 1)),
            Field("client_host", STRING, (1, 1)),
            Field("subscribed_topic_names", array_of(STRING), (1, 1)),
            Field("assignment", struct_of(Assignment), (1, 1)),
        ),
    )


class DescribedGroup(Message):
    """Part of the message, in versions 1-1."""

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
            Field("error_code", INT16, (1, 1)),
            Field("error_message", STRING, (1, 1), nullable=(1, 1)),
            Field("group_id", STRING, (1, 1)),
            Field("group_state", STRING, (1, 1)),
            Field("group_epoch", INT32, (1, 1)),
            Field("assignment_epoch", INT32, (1, 1)),
            Field("assignor_name", STRING, (1, 1)),
            Field("members", array_of(Member), (1, 1)),
            Field("authorized_operations", INT32, (1, 1)),
        ),
    )


class ShareGroupDescribeResponse(Message):
    """ShareGroupDescribe response, versions 1-1, flexible from 1."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 1),
        flexible=1,
        api_key=77,
        fields=(
            Field("throttle_time_ms", INT32, (1, 1)),
            Field("groups", array_of(DescribedGroup), (1, 1)),
        ),
    )
