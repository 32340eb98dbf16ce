"""Heartbeat: the messages of api key 12, versions 0-4.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema


class HeartbeatRequest(Message):
    """Heartbeat request, versions 0-4, flexible from 4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=4,
        api_key=12,
        fields=(
            Field("group_id", STRING, (0, 4)),
            Field("generation_id", INT32, (0, 4)),
            Field("member_id", STRING, (0, 4)),
            Field("group_instance_id", STRING, (3, 4), nullable=(3, 4)),
        ),
    )


class HeartbeatResponse(Message):
    """Heartbeat response, versions 0-4, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=4,
        api_key=12,
        fields=(
            Field("throttle_time_ms", INT32, (1, 4)),
            Field("error_code", INT16, (0, 4)),
        ),
    )
