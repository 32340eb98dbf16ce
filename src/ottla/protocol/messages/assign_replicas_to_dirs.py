"""AssignReplicasToDirs: the messages of api key 73, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import ZERO_UUID, Uuid


class RequestPartitionData(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("partition_index", INT32, (0, 0)),),
    )


class RequestTopicData(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(RequestPartitionData), (0, 0)),
        ),
    )


class RequestDirectoryData(Message):
    """Part of the message, in versions 0-0."""

    id: Uuid = ZERO_UUID
    topics: list[RequestTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("id", UUID, (0, 0)),
            Field("topics", array_of(RequestTopicData), (0, 0)),
        ),
    )


class AssignReplicasToDirsRequest(Message):
    """AssignReplicasToDirs request, versions 0-0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    directories: list[RequestDirectoryData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=73,
        fields=(
            Field("broker_id", INT32, (0, 0)),
            Field("broker_epoch", INT64, (0, 0)),
            Field("directories", array_of(RequestDirectoryData), (0, 0)),
        ),
    )


class ResponsePartitionData(Message):
    """Part of the message, in versions 0-0."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
        ),
    )


class ResponseTopicData(Message):
    """Part of the message, in versions 0-0."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(ResponsePartitionData), (0, 0)),
        ),
    )


class ResponseDirectoryData(Message):
    """Part of the message, in versions 0-0."""

    id: Uuid = ZERO_UUID
    topics: list[ResponseTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("id", UUID, (0, 0)),
            Field("topics", array_of(ResponseTopicData), (0, 0)),
        ),
    )


class AssignReplicasToDirsResponse(Message):
    """AssignReplicasToDirs response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    directories: list[ResponseDirectoryData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=73,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("directories", array_of(ResponseDirectoryData), (0, 0)),
        ),
    )
