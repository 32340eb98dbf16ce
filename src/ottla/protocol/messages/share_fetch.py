"""ShareFetch: the messages of api key 78, versions 1-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
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


class AcknowledgementBatch(Message):
    """Part of the message, in versions 1-2."""

    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("first_offset", INT64, (1, 2)),
            Field("last_offset", INT64, (1, 2)),
            Field("acknowledge_types", array_of(INT8), (1, 2)),
        ),
    )


class FetchPartition(Message):
    """Part of the message, in versions 1-2."""

    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 2)),
            Field("acknowledgement_batches", array_of(AcknowledgementBatch), (1, 2)),
        ),
    )


class FetchTopic(Message):
    """Part of the message, in versions 1-2."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (1, 2)),
            Field("partitions", array_of(FetchPartition), (1, 2)),
        ),
    )


class ForgottenTopic(Message):
    """Part of the message, in versions 1-2."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (1, 2)),
            Field("partitions", array_of(INT32), (1, 2)),
        ),
    )


class ShareFetchRequest(Message):
    """ShareFetch request, versions 1-2, flexible from 1."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=1,
        api_key=78,
        fields=(
            Field("group_id", STRING, (1, 2), nullable=(1, 2)),
            Field("member_id", STRING, (1, 2), nullable=(1, 2)),
            Field("share_session_epoch", INT32, (1, 2)),
            Field("max_wait_ms", INT32, (1, 2)),
            Field("min_bytes", INT32, (1, 2)),
            Field("max_bytes", INT32, (1, 2)),
            Field("max_records", INT32, (1, 2)),
            Field("batch_size", INT32, (1, 2)),
            Field("share_acquire_mode", INT8, (2, 2)),
            Field("is_renew_ack", BOOL, (2, 2)),
            Field("topics", array_of(FetchTopic), (1, 2)),
            Field("forgotten_topics_data", array_of(ForgottenTopic), (1, 2)),
        ),
    )


class LeaderIdAndEpoch(Message):
    """Part of the message, in versions 1-2."""

    leader_id: int = 0
    leader_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_id", INT32, (1, 2)),
            Field("leader_epoch", INT32, (1, 2)),
        ),
    )


class AcquiredRecords(Message):
    """Part of the message, in versions 1-2."""

    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("first_offset", INT64, (1, 2)),
            Field("last_offset", INT64, (1, 2)),
            Field("delivery_count", INT16, (1, 2)),
        ),
    )


class PartitionData(Message):
    """Part of the message, in versions 1-2."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: Buffer = b""
    acquired_records: list[AcquiredRecords] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 2)),
            Field("error_code", INT16, (1, 2)),
            Field("error_message", STRING, (1, 2), nullable=(1, 2)),
            Field("acknowledge_error_code", INT16, (1, 2)),
            Field("acknowledge_error_message", STRING, (1, 2), nullable=(1, 2)),
            Field("current_leader", struct_of(LeaderIdAndEpoch), (1, 2)),
            Field("records", RECORDS, (1, 2)),
            Field("acquired_records", array_of(AcquiredRecords), (1, 2)),
        ),
    )


class ShareFetchableTopicResponse(Message):
    """Part of the message, in versions 1-2."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (1, 2)),
            Field("partitions", array_of(PartitionData), (1, 2)),
        ),
    )


class NodeEndpoint(Message):
    """Part of the message, in versions 1-2."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (1, 2)),
            Field("host", STRING, (1, 2)),
            Field("port", INT32, (1, 2)),
            Field("rack", STRING, (1, 2), nullable=(1, 2)),
        ),
    )


class ShareFetchResponse(Message):
    """ShareFetch response, versions 1-2, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=1,
        api_key=78,
        fields=(
            Field("throttle_time_ms", INT32, (1, 2)),
            Field("error_code", INT16, (1, 2)),
            Field("error_message", STRING, (1, 2), nullable=(1, 2)),
            Field("acquisition_lock_timeout_ms", INT32, (1, 2)),
            Field("responses", array_of(ShareFetchableTopicResponse), (1, 2)),
            Field("node_endpoints", array_of(NodeEndpoint), (1, 2)),
        ),
    )
