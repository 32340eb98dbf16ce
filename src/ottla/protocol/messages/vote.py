"""Vote: the messages of api key 52, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
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
    replica_epoch: int = 0
    replica_id: int = 0
    replica_directory_id: Uuid = ZERO_UUID
    voter_directory_id: Uuid = ZERO_UUID
    last_offset_epoch: int = 0
    last_offset: int = 0
    pre_vote: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 2)),
            Field("replica_epoch", INT32, (0, 2)),
            Field("replica_id", INT32, (0, 2)),
            Field("replica_directory_id", UUID, (1, 2)),
            Field("voter_directory_id", UUID, (1, 2)),
            Field("last_offset_epoch", INT32, (0, 2)),
            Field("last_offset", INT64, (0, 2)),
            Field("pre_vote", BOOL, (2, 2)),
        ),
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


class VoteRequest(Message):
    """Vote request, versions 0-2, flexible from 0."""

    cluster_id: str | None = None
    voter_id: int = -1
    topics: list[RequestTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=52,
        fields=(
            Field("cluster_id", STRING, (0, 2), nullable=(0, 2)),
            Field("voter_id", INT32, (1, 2)),
            Field("topics", array_of(RequestTopicData), (0, 2)),
        ),
    )


class ResponsePartitionData(Message):
    """Part of the message, in versions 0-2."""

    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    vote_granted: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("leader_id", INT32, (0, 2)),
            Field("leader_epoch", INT32, (0, 2)),
            Field("vote_granted", BOOL, (0, 2)),
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


class NodeEndpoint(Message):
    """Part of the message, in versions 1-2."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (1, 2)),
            Field("host", STRING, (1, 2)),
            Field("port", UINT16, (1, 2)),
        ),
    )


class VoteResponse(Message):
    """Vote response, versions 0-2, flexible from 0."""

    error_code: int = 0
    topics: list[ResponseTopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=52,
        fields=(
            Field("error_code", INT16, (0, 2)),
            Field("topics", array_of(ResponseTopicData), (0, 2)),
            Field("node_endpoints", array_of(NodeEndpoint), (1, 2), tag=0, tagged=(1, 2)),
        ),
    )
