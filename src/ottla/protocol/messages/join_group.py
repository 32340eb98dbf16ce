"""JoinGroup: the messages of api key 11, versions 0-9.

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


class JoinGroupRequestProtocol(Message):
    """Part of the message, in versions 0-9."""

    name: str = ""
    metadata: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 9)),
            Field("metadata", BYTES, (0, 9)),
        ),
    )


class JoinGroupRequest(Message):
    """JoinGroup request, versions 0-9, flexible from 6."""

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 9),
        flexible=6,
        api_key=11,
        fields=(
            Field("group_id", STRING, (0, 9)),
            Field("session_timeout_ms", INT32, (0, 9)),
            Field("rebalance_timeout_ms", INT32, (1, 9)),
            Field("member_id", STRING, (0, 9)),
            Field("group_instance_id", STRING, (5, 9), nullable=(5, 9)),
            Field("protocol_type", STRING, (0, 9)),
            Field("protocols", array_of(JoinGroupRequestProtocol), (0, 9)),
            Field("reason", STRING, (8, 9), nullable=(8, 9)),
        ),
    )


class JoinGroupResponseMember(Message):
    """Part of the message, in versions 0-9."""

    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 9)),
            Field("group_instance_id", STRING, (5, 9), nullable=(5, 9)),
            Field("metadata", BYTES, (0, 9)),
        ),
    )


class JoinGroupResponse(Message):
    """JoinGroup response, versions 0-9, flexible from 6."""

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 9),
        flexible=6,
        api_key=11,
        fields=(
            Field("throttle_time_ms", INT32, (2, 9)),
            Field("error_code", INT16, (0, 9)),
            Field("generation_id", INT32, (0, 9)),
            Field("protocol_type", STRING, (7, 9), nullable=(7, 9)),
            Field("protocol_name", STRING, (0, 9), nullable=(7, 9)),
            Field("leader", STRING, (0, 9)),
            Field("skip_assignment", BOOL, (9, 9)),
            Field("member_id", STRING, (0, 9)),
            Field("members", array_of(JoinGroupResponseMember), (0, 9)),
        ),
    )
