"""DeleteGroups: the messages of api key 42, versions 0-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class DeleteGroupsRequest(Message):
    """DeleteGroups request, versions 0-3, flexible from 2."""

    groups_names: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=2,
        api_key=42,
        fields=(Field("groups_names", array_of(STRING), (0, 3)),),
    )


class DeletableGroupResult(Message):
    """Part of the message, in versions 0-3."""

    group_id: str = ""
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (0, 3)),
            Field("error_code", INT16, (0, 3)),
            Field("error_message", STRING, (3, 3), nullable=(3, 3)),
        ),
    )


class DeleteGroupsResponse(Message):
    """DeleteGroups response, versions 0-3, flexible from 2."""

    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=2,
        api_key=42,
        fields=(
            Field("throttle_time_ms", INT32, (0, 3)),
            Field("results", array_of(DeletableGroupResult), (0, 3)),
        ),
    )
