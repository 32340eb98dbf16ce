"""AlterPartitionReassignments: the messages of api key 45, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT16, INT32, STRING, Field, Message, Schema, array_of


class ReassignablePartition(Message):
    """Part of the message, in versions 0-1."""

    partition_index: int = 0
    replicas: list[int] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 1)),
            Field("replicas", array_of(INT32), (0, 1), nullable=(0, 1)),
        ),
    )


class ReassignableTopic(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("partitions", array_of(ReassignablePartition), (0, 1)),
        ),
    )


class AlterPartitionReassignmentsRequest(Message):
    """AlterPartitionReassignments request, versions 0-1, flexible from 0."""

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[ReassignableTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=45,
        fields=(
            Field("timeout_ms", INT32, (0, 1)),
            Field("allow_replication_factor_change", BOOL, (1, 1)),
            Field("topics", array_of(ReassignableTopic), (0, 1)),
        ),
    )


class ReassignablePartitionResponse(Message):
    """Part of the message, in versions 0-1."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class ReassignableTopicResponse(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("partitions", array_of(ReassignablePartitionResponse), (0, 1)),
        ),
    )


class AlterPartitionReassignmentsResponse(Message):
    """AlterPartitionReassignments response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=45,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("allow_replication_factor_change", BOOL, (1, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("responses", array_of(ReassignableTopicResponse), (0, 1)),
        ),
    )
