"""ReadShareGroupStateSummary: the messages of api key 87, versions 0-1.

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
    """Part of the message, in versions 0-1."""

    partition: int = 0
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
        ),
    )


class ReadStateSummaryData(Message):
    """Part of the message, in versions 0-1."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 1)),
            Field("partitions", array_of(PartitionData), (0, 1)),
        ),
    )


class ReadShareGroupStateSummaryRequest(Message):
    """ReadShareGroupStateSummary request, versions 0-1, flexible from 0."""

    group_id: str = ""
    topics: list[ReadStateSummaryData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=87,
        fields=(
            Field("group_id", STRING, (0, 1)),
            Field("topics", array_of(ReadStateSummaryData), (0, 1)),
        ),
    )


class PartitionResult(Message):
    """Part of the message, in versions 0-1."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("state_epoch", INT32, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
            Field("start_offset", INT64, (0, 1)),
            Field("delivery_complete_count", INT32, (1, 1)),
        ),
    )


class ReadStateSummaryResult(Message):
    """Part of the message, in versions 0-1."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 1)),
            Field("partitions", array_of(PartitionResult), (0, 1)),
        ),
    )


class ReadShareGroupStateSummaryResponse(Message):
    """ReadShareGroupStateSummary response, versions 0-1, flexible from 0."""

    results: list[ReadStateSummaryResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=87,
        fields=(Field("results", array_of(ReadStateSummaryResult), (0, 1)),),
    )
