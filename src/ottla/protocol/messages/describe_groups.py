"""DescribeGroups: the messages of api key 15, versions 0-6.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class DescribeGroupsRequest(Message):
    """DescribeGroups request, versions 0-6, flexible from 5."""

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=5,
        api_key=15,
        fields=(
            Field("groups", array_of(STRING), (0, 6)),
            Field("include_authorized_operations", BOOL, (3, 6)),
        ),
    )


class DescribedGroupMember(Message):
    """Part of the message, in versions 0-6."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 6)),
            Field("group_instance_id", STRING, (4, 6), nullable=(4, 6)),
            Field("client_id", STRING, (0, 6)),
            Field("client_host", STRING, (0, 6)),
            Field("member_metadata", BYTES, (0, 6)),
            Field("member_assignment", BYTES, (0, 6)),
        ),
    )


class DescribedGroup(Message):
    """Part of the message, in versions 0-6."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 6)),
            Field("error_message", STRING, (6, 6), nullable=(6, 6)),
            Field("group_id", STRING, (0, 6)),
            Field("group_state", STRING, (0, 6)),
            Field("protocol_type", STRING, (0, 6)),
            Field("protocol_data", STRING, (0, 6)),
            Field("members", array_of(DescribedGroupMember), (0, 6)),
            Field("authorized_operations", INT32, (3, 6)),
        ),
    )


class DescribeGroupsResponse(Message):
    """DescribeGroups response, versions 0-6, flexible from 5."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=5,
        api_key=15,
        fields=(
            Field("throttle_time_ms", INT32, (1, 6)),
            Field("groups", array_of(DescribedGroup), (0, 6)),
        ),
    )
