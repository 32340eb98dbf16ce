"""ListGroups: the messages of api key 16, versions 0-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class ListGroupsRequest(Message):
    """ListGroups request, versions 0-5, flexible from 3."""

    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=16,
        fields=(
            Field("states_filter", array_of(STRING), (4, 5)),
            Field("types_filter", array_of(STRING), (5, 5)),
        ),
    )


class ListedGroup(Message):
    """Part of the message, in versions 0-5."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("group_id", STRING, (0, 5)),
            Field("protocol_type", STRING, (0, 5)),
            Field("group_state", STRING, (4, 5)),
            Field("group_type", STRING, (5, 5)),
        ),
    )


class ListGroupsResponse(Message):
    """ListGroups response, versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=16,
        fields=(
            Field("throttle_time_ms", INT32, (1, 5)),
            Field("error_code", INT16, (0, 5)),
            Field("groups", array_of(ListedGroup), (0, 5)),
        ),
    )
