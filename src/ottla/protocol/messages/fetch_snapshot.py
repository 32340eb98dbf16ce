"""FetchSnapshot: the messages of api key 59, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Buffer, Uuid


class RequestSnapshotId(Message):
    """Part of the message, in versions 0-1."""

    end_offset: int = 0
    epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("end_offset", INT64, (0, 1)),
            Field("epoch", INT32, (0, 1)),
        ),
    )


class RequestPartitionSnapshot(Message):
    """Part of the message, in versions 0-1."""

    partition: int = 0
    current_leader_epoch: int = 0
    snapshot_id: RequestSnapshotId = field(default_factory=RequestSnapshotId)
    position: int = 0
    replica_directory_id: Uuid = ZERO_UUID
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 1)),
            Field("current_leader_epoch", INT32, (0, 1)),
            Field("snapshot_id", struct_of(RequestSnapshotId), (0, 1)),
            Field("position", INT64, (0, 1)),
            Field("replica_directory_id", UUID, (1, 1), tag=0, tagged=(1, 1)),
        ),
    )


class RequestTopicSnapshot(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    partitions: list[RequestPartitionSnapshot] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("partitions", array_of(RequestPartitionSnapshot), (0, 1)),
        ),
    )


class FetchSnapshotRequest(Message):
    """FetchSnapshot request, versions 0-1, flexible from 0."""

    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: list[RequestTopicSnapshot] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=59,
        fields=(
            Field("cluster_id", STRING, (0, 1), nullable=(0, 1), tag=0, tagged=(0, 1)),
            Field("replica_id", INT32, (0, 1)),
            Field("max_bytes", INT32, (0, 1)),
            Field("topics", array_of(RequestTopicSnapshot), (0, 1)),
        ),
    )


class ResponseSnapshotId(Message):
    """Part of the message, in versions 0-1."""

    end_offset: int = 0
    epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("end_offset", INT64, (0, 1)),
            Field("epoch", INT32, (0, 1)),
        ),
    )


class LeaderIdAndEpoch(Message):
    """Part of the message, in versions 0-1."""

    leader_id: int = 0
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_id", INT32, (0, 1)),
            Field("leader_epoch", INT32, (0, 1)),
        ),
    )


class ResponsePartitionSnapshot(Message):
    """Part of the message, in versions 0-1."""

    index: int = 0
    error_code: int = 0
    snapshot_id: ResponseSnapshotId = field(default_factory=ResponseSnapshotId)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    size: int = 0
    position: int = 0
    unaligned_records: Buffer = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("index", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("snapshot_id", struct_of(ResponseSnapshotId), (0, 1)),
            Field("current_leader", struct_of(LeaderIdAndEpoch), (0, 1), tag=0, tagged=(0, 1)),
            Field("size", INT64, (0, 1)),
            Field("position", INT64, (0, 1)),
            Field("unaligned_records", RECORDS, (0, 1)),
        ),
    )


class ResponseTopicSnapshot(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    partitions: list[ResponsePartitionSnapshot] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("partitions", array_of(ResponsePartitionSnapshot), (0, 1)),
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


class FetchSnapshotResponse(Message):
    """FetchSnapshot response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[ResponseTopicSnapshot] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=59,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("topics", array_of(ResponseTopicSnapshot), (0, 1)),
            Field("node_endpoints", array_of(NodeEndpoint), (1, 1), tag=0, tagged=(1, 1)),
        ),
    )
