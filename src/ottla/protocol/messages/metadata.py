"""Metadata: the messages of api key 3, versions 0-13.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import ZERO_UUID, Uuid


class MetadataRequestTopic(Message):
    """Part of the message, in versions 0-13."""

    topic_id: Uuid = ZERO_UUID
    name: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (10, 13)),
            Field("name", STRING, (0, 13), nullable=(10, 13)),
        ),
    )


class MetadataRequest(Message):
    """Metadata request, versions 0-13, flexible from 9."""

    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 13),
        flexible=9,
        api_key=3,
        fields=(
            Field("topics", array_of(MetadataRequestTopic), (0, 13), nullable=(1, 13)),
            Field("allow_auto_topic_creation", BOOL, (4, 13)),
            Field("include_cluster_authorized_operations", BOOL, (8, 10)),
            Field("include_topic_authorized_operations", BOOL, (8, 13)),
        ),
    )


class MetadataResponseBroker(Message):
    """Part of the message, in versions 0-13."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("node_id", INT32, (0, 13)),
            Field("host", STRING, (0, 13)),
            Field("port", INT32, (0, 13)),
            Field("rack", STRING, (1, 13), nullable=(1, 13)),
        ),
    )


class MetadataResponsePartition(Message):
    """Part of the message, in versions 0-13."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 13)),
            Field("partition_index", INT32, (0, 13)),
            Field("leader_id", INT32, (0, 13)),
            Field("leader_epoch", INT32, (7, 13)),
            Field("replica_nodes", array_of(INT32), (0, 13)),
            Field("isr_nodes", array_of(INT32), (0, 13)),
            Field("offline_replicas", array_of(INT32), (5, 13)),
        ),
    )


class MetadataResponseTopic(Message):
    """Part of the message, in versions 0-13."""

    error_code: int = 0
    name: str | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 13)),
            Field("name", STRING, (0, 13), nullable=(12, 13)),
            Field("topic_id", UUID, (10, 13)),
            Field("is_internal", BOOL, (1, 13)),
            Field("partitions", array_of(MetadataResponsePartition), (0, 13)),
            Field("topic_authorized_operations", INT32, (8, 13)),
        ),
    )


class MetadataResponse(Message):
    """Metadata response, versions 0-13, flexible from 9."""

    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 13),
        flexible=9,
        api_key=3,
        fields=(
            Field("throttle_time_ms", INT32, (3, 13)),
            Field("brokers", array_of(MetadataResponseBroker), (0, 13)),
            Field("cluster_id", STRING, (2, 13), nullable=(2, 13)),
            Field("controller_id", INT32, (1, 13)),
            Field("topics", array_of(MetadataResponseTopic), (0, 13)),
            Field("cluster_authorized_operations", INT32, (8, 10)),
            Field("error_code", INT16, (13, 13)),
        ),
    )
