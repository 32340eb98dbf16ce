"""ReadShareGroupState: the messages of api key 84, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT8,
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
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 0)),
            Field("leader_epoch", INT32, (0, 0)),
        ),
    )


class ReadStateData(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(PartitionData), (0, 0)),
        ),
    )


class ReadShareGroupStateRequest(Message):
    """ReadShareGroupState request, versions 0-0, flexible from 0."""

    group_id: str = ""
    topics: list[ReadStateData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=84,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topics", array_of(ReadStateData), (0, 0)),
        ),
    )


class StateBatch(Message):
    """Part of the message, in versions 0-0."""

    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("first_offset", INT64, (0, 0)),
            Field("last_offset", INT64, (0, 0)),
            Field("delivery_state", INT8, (0, 0)),
            Field("delivery_count", INT16, (0, 0)),
        ),
    )


class PartitionResult(Message):
    """Part of the message, in versions 0-0."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: list[StateBatch] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("state_epoch", INT32, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
            Field("state_batches", array_of(StateBatch), (0, 0)),
        ),
    )


class ReadStateResult(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(PartitionResult), (0, 0)),
        ),
    )


class ReadShareGroupStateResponse(Message):
    """ReadShareGroupState response, versions 0-0, flexible from 0."""

    results: list[ReadStateResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=84,
        fields=(Field("results", array_of(ReadStateResult), (0, 0)),),
    )
