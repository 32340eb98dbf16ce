"""LeaveGroup: the messages of api key 13, versions 0-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class MemberIdentity(Message):
    """Part of the message, in versions 3-5."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (3, 5)),
            Field("group_instance_id", STRING, (3, 5), nullable=(3, 5)),
            Field("reason", STRING, (5, 5), nullable=(5, 5)),
        ),
    )


class LeaveGroupRequest(Message):
    """LeaveGroup request, versions 0-5, flexible from 4."""

    group_id: str = ""
    member_id: str = ""
    members: list[MemberIdentity] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=4,
        api_key=13,
        fields=(
            Field("group_id", STRING, (0, 5)),
            Field("member_id", STRING, (0, 2)),
            Field("members", array_of(MemberIdentity), (3, 5)),
        ),
    )


class MemberResponse(Message):
    """Part of the message, in versions 3-5."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (3, 5)),
            Field("group_instance_id", STRING, (3, 5), nullable=(3, 5)),
            Field("error_code", INT16, (3, 5)),
        ),
    )


class LeaveGroupResponse(Message):
    """LeaveGroup response, versions 0-5, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=4,
        api_key=13,
        fields=(
            Field("throttle_time_ms", INT32, (1, 5)),
            Field("error_code", INT16, (0, 5)),
            Field("members", array_of(MemberResponse), (3, 5)),
        ),
    )
