"""Fetch: the messages of api key 1, versions 4-18.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Buffer, Uuid


class ReplicaState(Message):
    """Part of the message, in versions 15-18."""

    replica_id: int = -1
    replica_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("replica_id", INT32, (15, 18)),
            Field("replica_epoch", INT64, (15, 18)),
        ),
    )


class FetchPartition(Message):
    """Part of the message, in versions 4-18."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: Uuid = ZERO_UUID
    high_watermark: int = 9223372036854775807
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (4, 18)),
            Field("current_leader_epoch", INT32, (9, 18)),
            Field("fetch_offset", INT64, (4, 18)),
            Field("last_fetched_epoch", INT32, (12, 18)),
            Field("log_start_offset", INT64, (5, 18)),
            Field("partition_max_bytes", INT32, (4, 18)),
            Field("replica_directory_id", UUID, (17, 18), tag=0, tagged=(17, 18)),
            Field("high_watermark", INT64, (18, 18), tag=1, tagged=(18, 18)),
        ),
    )


class FetchTopic(Message):
    """Part of the message, in versions 4-18."""

    topic: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (4, 12)),
            Field("topic_id", UUID, (13, 18)),
            Field("partitions", array_of(FetchPartition), (4, 18)),
        ),
    )


class ForgottenTopic(Message):
    """Part of the message, in versions 7-18."""

    topic: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (7, 12)),
            Field("topic_id", UUID, (13, 18)),
            Field("partitions", array_of(INT32), (7, 18)),
        ),
    )


class FetchRequest(Message):
    """Fetch request, versions 4-18, flexible from 12."""

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = field(default_factory=ReplicaState)
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(4, 18),
        flexible=12,
        api_key=1,
        fields=(
            Field("cluster_id", STRING, (12, 18), nullable=(12, 18), tag=0, tagged=(12, 18)),
            Field("replica_id", INT32, (4, 14)),
            Field("replica_state", struct_of(ReplicaState), (15, 18), tag=1, tagged=(15, 18)),
            Field("max_wait_ms", INT32, (4, 18)),
            Field("min_bytes", INT32, (4, 18)),
            Field("max_bytes", INT32, (4, 18)),
            Field("isolation_level", INT8, (4, 18)),
            Field("session_id", INT32, (7, 18)),
            Field("session_epoch", INT32, (7, 18)),
            Field("topics", array_of(FetchTopic), (4, 18)),
            Field("forgotten_topics_data", array_of(ForgottenTopic), (7, 18)),
            Field("rack_id", STRING, (11, 18)),
        ),
    )


class EpochEndOffset(Message):
    """Part of the message, in versions 12-18."""

    epoch: int = -1
    end_offset: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("epoch", INT32, (12, 18)),
            Field("end_offset", INT64, (12, 18)),
        ),
    )


class LeaderIdAndEpoch(Message):
    """Part of the message, in versions 12-18."""

    leader_id: int = -1
    leader_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_id", INT32, (12, 18)),
            Field("leader_epoch", INT32, (12, 18)),
        ),
    )


class SnapshotId(Message):
    """Part of the message, in versions 12-18."""

    end_offset: int = -1
    epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("end_offset", INT64, (12, 18)),
            Field("epoch", INT32, (12, 18)),
        ),
    )


class AbortedTransaction(Message):
    """Part of the message, in versions 4-18."""

    producer_id: int = 0
    first_offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("producer_id", INT64, (4, 18)),
            Field("first_offset", INT64, (4, 18)),
        ),
    )


class PartitionData(Message):
    """Part of the message, in versions 4-18."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1
    records: Buffer | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (4, 18)),
            Field("error_code", INT16, (4, 18)),
            Field("high_watermark", INT64, (4, 18)),
            Field("last_stable_offset", INT64, (4, 18)),
            Field("log_start_offset", INT64, (5, 18)),
            Field("diverging_epoch", struct_of(EpochEndOffset), (12, 18), tag=0, tagged=(12, 18)),
            Field("current_leader", struct_of(LeaderIdAndEpoch), (12, 18), tag=1, tagged=(12, 18)),
            Field("snapshot_id", struct_of(SnapshotId), (12, 18), tag=2, tagged=(12, 18)),
            Field("aborted_transactions", array_of(AbortedTransaction), (4, 18), nullable=(4, 18)),
            Field("preferred_read_replica", INT32, (11, 18)),
            Field("records", RECORDS, (4, 18), nullable=(4, 18)),
        ),
    )


class FetchableTopicResponse(Message):
    """Part of the message, in versions 4-18."""

    topic: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (4, 12)),
            Field("topic_id", UUID, (13, 18)),
            Field("partitions", array_of(PartitionData), (4, 18)),
        ),
    )


class NodeEndpoint(Message):
    """Part of the message, in versions 16-18."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (16, 18)),
            Field("host", STRING, (16, 18)),
            Field("port", INT32, (16, 18)),
            Field("rack", STRING, (16, 18), nullable=(16, 18)),
        ),
    )


class FetchResponse(Message):
    """Fetch response, versions 4-18, flexible from 12."""

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(4, 18),
        flexible=12,
        api_key=1,
        fields=(
            Field("throttle_time_ms", INT32, (4, 18)),
            Field("error_code", INT16, (7, 18)),
            Field("session_id", INT32, (7, 18)),
            Field("responses", array_of(FetchableTopicResponse), (4, 18)),
            Field("node_endpoints", array_of(NodeEndpoint), (16, 18), tag=0, tagged=(16, 18)),
        ),
    )
