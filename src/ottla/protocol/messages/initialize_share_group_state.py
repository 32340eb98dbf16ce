"""InitializeShareGroupState: the messages of api key 83, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class PartitionData(Message):
    """Part of the message, in versions 0-0."""

    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 0)),
            Field("state_epoch", INT32, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
        ),
    )


class InitializeStateData(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(PartitionData), (0, 0)),
        ),
    )


class InitializeShareGroupStateRequest(Message):
    """InitializeShareGroupState request, versions 0-0, flexible from 0."""

    group_id: str = ""
    topics: list[InitializeStateData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=83,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topics", array_of(InitializeStateData), (0, 0)),
        ),
    )


class PartitionResult(Message):
    """Part of the message, in versions 0-0."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class InitializeStateResult(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(PartitionResult), (0, 0)),
        ),
    )


class InitializeShareGroupStateResponse(Message):
    """InitializeShareGroupState response, versions 0-0, flexible from 0."""

    results: list[InitializeStateResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=83,
        fields=(Field("results", array_of(InitializeStateResult), (0, 0)),),
    )
