"""Produce: the messages of api key 0, versions 3-13.

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
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Buffer, Uuid


class PartitionProduceData(Message):
    """Part of the message, in versions 3-13."""

    index: int = 0
    records: Buffer | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("index", INT32, (3, 13)),
            Field("records", RECORDS, (3, 13), nullable=(3, 13)),
        ),
    )


class TopicProduceData(Message):
    """Part of the message, in versions 3-13."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partition_data: list[PartitionProduceData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 12)),
            Field("topic_id", UUID, (13, 13)),
            Field("partition_data", array_of(PartitionProduceData), (3, 13)),
        ),
    )


class ProduceRequest(Message):
    """Produce request, versions 3-13, flexible from 9."""

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(3, 13),
        flexible=9,
        api_key=0,
        fields=(
            Field("transactional_id", STRING, (3, 13), nullable=(3, 13)),
            Field("acks", INT16, (3, 13)),
            Field("timeout_ms", INT32, (3, 13)),
            Field("topic_data", array_of(TopicProduceData), (3, 13)),
        ),
    )


class BatchIndexAndErrorMessage(Message):
    """Part of the message, in versions 8-13."""

    batch_index: int = 0
    batch_index_error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("batch_index", INT32, (8, 13)),
            Field("batch_index_error_message", STRING, (8, 13), nullable=(8, 13)),
        ),
    )


class LeaderIdAndEpoch(Message):
    """Part of the message, in versions 10-13."""

    leader_id: int = -1
    leader_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_id", INT32, (10, 13)),
            Field("leader_epoch", INT32, (10, 13)),
        ),
    )


class PartitionProduceResponse(Message):
    """Part of the message, in versions 3-13."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("index", INT32, (3, 13)),
            Field("error_code", INT16, (3, 13)),
            Field("base_offset", INT64, (3, 13)),
            Field("log_append_time_ms", INT64, (3, 13)),
            Field("log_start_offset", INT64, (5, 13)),
            Field("record_errors", array_of(BatchIndexAndErrorMessage), (8, 13)),
            Field("error_message", STRING, (8, 13), nullable=(8, 13)),
            Field("current_leader", struct_of(LeaderIdAndEpoch), (10, 13), tag=0, tagged=(10, 13)),
        ),
    )


class TopicProduceResponse(Message):
    """Part of the message, in versions 3-13."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 12)),
            Field("topic_id", UUID, (13, 13)),
            Field("partition_responses", array_of(PartitionProduceResponse), (3, 13)),
        ),
    )


class NodeEndpoint(Message):
    """Part of the message, in versions 10-13."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (10, 13)),
            Field("host", STRING, (10, 13)),
            Field("port", INT32, (10, 13)),
            Field("rack", STRING, (10, 13), nullable=(10, 13)),
        ),
    )


class ProduceResponse(Message):
    """Produce response, versions 3-13, flexible from 9."""

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(3, 13),
        flexible=9,
        api_key=0,
        fields=(
            Field("responses", array_of(TopicProduceResponse), (3, 13)),
            Field("throttle_time_ms", INT32, (3, 13)),
            Field("node_endpoints", array_of(NodeEndpoint), (10, 13), tag=0, tagged=(10, 13)),
        ),
    )
