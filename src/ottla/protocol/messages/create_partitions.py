"""CreatePartitions: the messages of api key 37, versions 0-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT16, INT32, STRING, Field, Message, Schema, array_of


class CreatePartitionsAssignment(Message):
    """Part of the message, in versions 0-3."""

    broker_ids: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("broker_ids", array_of(INT32), (0, 3)),),
    )


class CreatePartitionsTopic(Message):
    """Part of the message, in versions 0-3."""

    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 3)),
            Field("count", INT32, (0, 3)),
            Field("assignments", array_of(CreatePartitionsAssignment), (0, 3), nullable=(0, 3)),
        ),
    )


class CreatePartitionsRequest(Message):
    """CreatePartitions request, versions 0-3, flexible from 2."""

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=2,
        api_key=37,
        fields=(
            Field("topics", array_of(CreatePartitionsTopic), (0, 3)),
            Field("timeout_ms", INT32, (0, 3)),
            Field("validate_only", BOOL, (0, 3)),
        ),
    )


class CreatePartitionsTopicResult(Message):
    """Part of the message, in versions 0-3."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 3)),
            Field("error_code", INT16, (0, 3)),
            Field("error_message", STRING, (0, 3), nullable=(0, 3)),
        ),
    )


class CreatePartitionsResponse(Message):
    """CreatePartitions response, versions 0-3, flexible from 2."""

    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=2,
        api_key=37,
        fields=(
            Field("throttle_time_ms", INT32, (0, 3)),
            Field("results", array_of(CreatePartitionsTopicResult), (0, 3)),
        ),
    )
