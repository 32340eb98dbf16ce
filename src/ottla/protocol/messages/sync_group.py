"""SyncGroup: the messages of api key 14, versions 0-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BYTES, INT16, INT32, STRING, Field, Message, Schema, array_of


class SyncGroupRequestAssignment(Message):
    """Part of the message, in versions 0-5."""

    member_id: str = ""
    assignment: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 5)),
            Field("assignment", BYTES, (0, 5)),
        ),
    )


class SyncGroupRequest(Message):
    """SyncGroup request, versions 0-5, flexible from 4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=4,
        api_key=14,
        fields=(
            Field("group_id", STRING, (0, 5)),
            Field("generation_id", INT32, (0, 5)),
            Field("member_id", STRING, (0, 5)),
            Field("group_instance_id", STRING, (3, 5), nullable=(3, 5)),
            Field("protocol_type", STRING, (5, 5), nullable=(5, 5)),
            Field("protocol_name", STRING, (5, 5), nullable=(5, 5)),
            Field("assignments", array_of(SyncGroupRequestAssignment), (0, 5)),
        ),
    )


class SyncGroupResponse(Message):
    """SyncGroup response, versions 0-5, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=4,
        api_key=14,
        fields=(
            Field("throttle_time_ms", INT32, (1, 5)),
            Field("error_code", INT16, (0, 5)),
            Field("protocol_type", STRING, (5, 5), nullable=(5, 5)),
            Field("protocol_name", STRING, (5, 5), nullable=(5, 5)),
            Field("assignment", BYTES, (0, 5)),
        ),
    )
