"""EndQuorumEpoch: the messages of api key 54, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class ReplicaInfo(Message):
    """Part of the message, in versions 1-1."""

    candidate_id: int = 0
    candidate_directory_id: Uuid = ZERO_UUID
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("candidate_id", INT32, (1, 1)),
            Field("candidate_directory_id", UUID, (1, 1)),
        ),
    )


class RequestPartitionData(Message):
    """Part of the message, in versions 0-1."""

    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    preferred_successors: list[int] = field(default_factory=list)
    preferred_candidates: list[ReplicaInfo] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 1)),
            Field("leader_id", INT32, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
            Field("preferred_successors", array_of(INT32), (0, 0)),
            Field("preferred_candidates", array_of(ReplicaInfo), (1, 1)),
        ),
    )


class RequestTopicData(Message):
    """Part of the message, in versions 0-1."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 1)),
            Field("partitions", array_of(RequestPartitionData), (0, 1)),
        ),
    )


class LeaderEndpoint(Message):
    """Part of the message, in versions 1-1."""

    name: str = ""
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 1)),
            Field("host", STRING, (1, 1)),
            Field("port", UINT16, (1, 1)),
        ),
    )


class EndQuorumEpochRequest(Message):
    """EndQuorumEpoch request, versions 0-1, flexible from 1."""

    cluster_id: str | None = None
    topics: list[RequestTopicData] = field(default_factory=list)
    leader_endpoints: list[LeaderEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=54,
        fields=(
            Field("cluster_id", STRING, (0, 1), nullable=(0, 1)),
            Field("topics", array_of(RequestTopicData), (0, 1)),
            Field("leader_endpoints", array_of(LeaderEndpoint), (1, 1)),
        ),
    )


class ResponsePartitionData(Message):
    """Part of the message, in versions 0-1."""

    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("leader_id", INT32, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
        ),
    )


class ResponseTopicData(Message):
    """Part of the message, in versions 0-1."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (0, 1)),
            Field("partitions", array_of(ResponsePartitionData), (0, 1)),
        ),
    )


class NodeEndpoint(Message):
    """Part of the message, in versions 1-1."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (1, 1)),
            Field("host", STRING, (1, 1)),
            Field("port", UINT16, (1, 1)),
        ),
    )


class EndQuorumEpochResponse(Message):
    """EndQuorumEpoch response, versions 0-1, flexible from 1."""

    error_code: int = 0
    topics: list[ResponseTopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=54,
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("topics", array_of(ResponseTopicData), (0, 1)),
            Field("node_endpoints", array_of(NodeEndpoint), (1, 1), tag=0, tagged=(1, 1)),
        ),
    )
