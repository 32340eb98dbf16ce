"""DeleteShareGroupOffsets: the messages of api key 92, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import ZERO_UUID, Uuid


class DeleteShareGroupOffsetsRequestTopic(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("topic_name", STRING, (0, 0)),),
    )


class DeleteShareGroupOffsetsRequest(Message):
    """DeleteShareGroupOffsets request, versions 0-0, flexible from 0."""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=92,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topics", array_of(DeleteShareGroupOffsetsRequestTopic), (0, 0)),
        ),
    )


class DeleteShareGroupOffsetsResponseTopic(Message):
    """Part of the message, in versions 0-0."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 0)),
            Field("topic_id", UUID, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class DeleteShareGroupOffsetsResponse(Message):
    """DeleteShareGroupOffsets response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=92,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("responses", array_of(DeleteShareGroupOffsetsResponseTopic), (0, 0)),
        ),
    )
