"""DeleteTopics: the messages of api key 20, versions 1-6.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import ZERO_UUID, Uuid


class DeleteTopicState(Message):
    """Part of the message, in versions 6-6."""

    name: str | None = None
    topic_id: Uuid = ZERO_UUID
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (6, 6), nullable=(6, 6)),
            Field("topic_id", UUID, (6, 6)),
        ),
    )


class DeleteTopicsRequest(Message):
    """DeleteTopics request, versions 1-6, flexible from 4."""

    topic_names: list[str] = field(default_factory=list)
    topics: list[DeleteTopicState] = field(default_factory=list)
    timeout_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 6),
        flexible=4,
        api_key=20,
        fields=(
            Field("topic_names", array_of(STRING), (1, 5)),
            Field("topics", array_of(DeleteTopicState), (6, 6)),
            Field("timeout_ms", INT32, (1, 6)),
        ),
    )


class DeletableTopicResult(Message):
    """Part of the message, in versions 1-6."""

    name: str | None = ""
    topic_id: Uuid = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 6), nullable=(6, 6)),
            Field("topic_id", UUID, (6, 6)),
            Field("error_code", INT16, (1, 6)),
            Field("error_message", STRING, (5, 6), nullable=(5, 6)),
        ),
    )


class DeleteTopicsResponse(Message):
    """DeleteTopics response, versions 1-6, flexible from 4."""

    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 6),
        flexible=4,
        api_key=20,
        fields=(
            Field("throttle_time_ms", INT32, (1, 6)),
            Field("responses", array_of(DeletableTopicResult), (1, 6)),
        ),
    )
