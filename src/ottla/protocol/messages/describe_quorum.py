"""DescribeQuorum: the messages of api key 55, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class RequestPartitionData(Message):
    """Part of the message, in versions 0-2."""

    partition_index: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("partition_index", INT32, (0, 2)),),
    )


class RequestTopicData(Message):
    """Part of the message, in versions 0-2."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 2)),
            Field("partitions", array_of(RequestPartitionData), (0, 2)),
        ),
    )


class DescribeQuorumRequest(Message):
    """DescribeQuorum request, versions 0-2, flexible from 0."""

    topics: list[RequestTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=55,
        fields=(Field("topics", array_of(RequestTopicData), (0, 2)),),
    )


class ReplicaState(Message):
    """Part of the message, in versions 0-2."""

    replica_id: int = 0
    replica_directory_id: Uuid = ZERO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("replica_id", INT32, (0, 2)),
            Field("replica_directory_id", UUID, (2, 2)),
            Field("log_end_offset", INT64, (0, 2)),
            Field("last_fetch_timestamp", INT64, (1, 2)),
            Field("last_caught_up_timestamp", INT64, (1, 2)),
        ),
    )


class ResponsePartitionData(Message):
    """Part of the message, in versions 0-2."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (2, 2), nullable=(2, 2)),
            Field("leader_id", INT32, (0, 2)),
            Field("leader_epoch", INT32, (0, 2)),
            Field("high_watermark", INT64, (0, 2)),
            Field("current_voters", array_of(ReplicaState), (0, 2)),
            Field("observers", array_of(ReplicaState), (0, 2)),
        ),
    )


class ResponseTopicData(Message):
    """Part of the message, in versions 0-2."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 2)),
            Field("partitions", array_of(ResponsePartitionData), (0, 2)),
        ),
    )


class Listener(Message):
    """Part of the message, in versions 2-2."""

    name: str = ""
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 2)),
            Field("host", STRING, (2, 2)),
            Field("port", UINT16, (2, 2)),
        ),
    )


class Node(Message):
    """Part of the message, in versions 2-2."""

    node_id: int = 0
    listeners: list[Listener] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (2, 2)),
            Field("listeners", array_of(Listener), (2, 2)),
        ),
    )


class DescribeQuorumResponse(Message):
    """DescribeQuorum response, versions 0-2, flexible from 0."""

    error_code: int = 0
    error_message: str | None = ""
    topics: list[ResponseTopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=55,
        fields=(
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (2, 2), nullable=(2, 2)),
            Field("topics", array_of(ResponseTopicData), (0, 2)),
            Field("nodes", array_of(Node), (2, 2)),
        ),
    )
