"""ListPartitionReassignments: the messages of api key 46, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class ListPartitionReassignmentsTopics(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partition_indexes", array_of(INT32), (0, 0)),
        ),
    )


class ListPartitionReassignmentsRequest(Message):
    """ListPartitionReassignments request, versions 0-0, flexible from 0."""

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=46,
        fields=(
            Field("timeout_ms", INT32, (0, 0)),
            Field("topics", array_of(ListPartitionReassignmentsTopics), (0, 0), nullable=(0, 0)),
        ),
    )


class OngoingPartitionReassignment(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("replicas", array_of(INT32), (0, 0)),
            Field("adding_replicas", array_of(INT32), (0, 0)),
            Field("removing_replicas", array_of(INT32), (0, 0)),
        ),
    )


class OngoingTopicReassignment(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", array_of(OngoingPartitionReassignment), (0, 0)),
        ),
    )


class ListPartitionReassignmentsResponse(Message):
    """ListPartitionReassignments response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=46,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("topics", array_of(OngoingTopicReassignment), (0, 0)),
        ),
    )
