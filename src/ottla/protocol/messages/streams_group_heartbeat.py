"""StreamsGroupHeartbeat: the messages of api key 88, versions 0-1.

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
    STRING,
    UINT16,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)


class KeyValue(Message):
    """Part of the message, in versions 0-1."""

    key: str = ""
    value: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 1)),
            Field("value", STRING, (0, 1)),
        ),
    )


class TopicInfo(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[KeyValue] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("partitions", INT32, (0, 1)),
            Field("replication_factor", INT16, (0, 1)),
            Field("topic_configs", array_of(KeyValue), (0, 1)),
        ),
    )


class CopartitionGroup(Message):
    """Part of the message, in versions 0-1."""

    source_topics: list[int] = field(default_factory=list)
    source_topic_regex: list[int] = field(default_factory=list)
    repartition_source_topics: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("source_topics", array_of(INT16), (0, 1)),
            Field("source_topic_regex", array_of(INT16), (0, 1)),
            Field("repartition_source_topics", array_of(INT16), (0, 1)),
        ),
    )


class Subtopology(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    source_topics: list[str] = field(default_factory=list)
    source_topic_regex: list[str] = field(default_factory=list)
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)
    repartition_sink_topics: list[str] = field(default_factory=list)
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("source_topics", array_of(STRING), (0, 1)),
            Field("source_topic_regex", array_of(STRING), (0, 1)),
            Field("state_changelog_topics", array_of(TopicInfo), (0, 1)),
            Field("repartition_sink_topics", array_of(STRING), (0, 1)),
            Field("repartition_source_topics", array_of(TopicInfo), (0, 1)),
            Field("copartition_groups", array_of(CopartitionGroup), (0, 1)),
        ),
    )


class Topology(Message):
    """Part of the message, in versions 0-1."""

    epoch: int = 0
    subtopologies: list[Subtopology] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("epoch", INT32, (0, 1)),
            Field("subtopologies", array_of(Subtopology), (0, 1)),
        ),
    )


class RequestTaskIds(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class RequestEndpoint(Message):
    """Part of the message, in versions 0-1."""

    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("host", STRING, (0, 1)),
            Field("port", UINT16, (0, 1)),
        ),
    )


class TaskOffset(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("partition", INT32, (0, 1)),
            Field("offset", INT64, (0, 1)),
        ),
    )


class StreamsGroupHeartbeatRequest(Message):
    """StreamsGroupHeartbeat request, versions 0-1, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: list[RequestTaskIds] | None = None
    standby_tasks: list[RequestTaskIds] | None = None
    warmup_tasks: list[RequestTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: RequestEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=88,
        fields=(
            Field("group_id", STRING, (0, 1)),
            Field("member_id", STRING, (0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("endpoint_information_epoch", INT32, (0, 1)),
            Field("instance_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rack_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rebalance_timeout_ms", INT32, (0, 1)),
            Field("topology", struct_of(Topology), (0, 1), nullable=(0, 1)),
            Field("active_tasks", array_of(RequestTaskIds), (0, 1), nullable=(0, 1)),
            Field("standby_tasks", array_of(RequestTaskIds), (0, 1), nullable=(0, 1)),
            Field("warmup_tasks", array_of(RequestTaskIds), (0, 1), nullable=(0, 1)),
            Field("process_id", STRING, (0, 1), nullable=(0, 1)),
            Field("user_endpoint", struct_of(RequestEndpoint), (0, 1), nullable=(0, 1)),
            Field("client_tags", array_of(KeyValue), (0, 1), nullable=(0, 1)),
            Field("task_offsets", array_of(TaskOffset), (0, 1), nullable=(0, 1)),
            Field("task_end_offsets", array_of(TaskOffset), (0, 1), nullable=(0, 1)),
            Field("shutdown_application", BOOL, (0, 1)),
        ),
    )


class Status(Message):
    """Part of the message, in versions 0-1."""

    status_code: int = 0
    status_detail: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("status_code", INT8, (0, 1)),
            Field("status_detail", STRING, (0, 1)),
        ),
    )


class ResponseTaskIds(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class ResponseEndpoint(Message):
    """Part of the message, in versions 0-1."""

    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("host", STRING, (0, 1)),
            Field("port", UINT16, (0, 1)),
        ),
    )


class TopicPartition(Message):
    """Part of the message, in versions 0-1."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class EndpointToPartitions(Message):
    """Part of the message, in versions 0-1."""

    user_endpoint: ResponseEndpoint = field(default_factory=ResponseEndpoint)
    active_partitions: list[TopicPartition] = field(default_factory=list)
    standby_partitions: list[TopicPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("user_endpoint", struct_of(ResponseEndpoint), (0, 1)),
            Field("active_partitions", array_of(TopicPartition), (0, 1)),
            Field("standby_partitions", array_of(TopicPartition), (0, 1)),
        ),
    )


class StreamsGroupHeartbeatResponse(Message):
    """StreamsGroupHeartbeat response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag_legacy: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    status: list[Status] | None = field(default_factory=list)
    active_tasks: list[ResponseTaskIds] | None = None
    standby_tasks: list[ResponseTaskIds] | None = None
    warmup_tasks: list[ResponseTaskIds] | None = None
    topology_description_required: bool = False
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=88,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("member_id", STRING, (0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("heartbeat_interval_ms", INT32, (0, 1)),
            Field("acceptable_recovery_lag_legacy", INT32, (0, 0)),
            Field("task_offset_interval_ms", INT32, (0, 1)),
            Field("acceptable_recovery_lag", INT64, (1, 1)),
            Field("status", array_of(Status), (0, 1), nullable=(0, 1)),
            Field("active_tasks", array_of(ResponseTaskIds), (0, 1), nullable=(0, 1)),
            Field("standby_tasks", array_of(ResponseTaskIds), (0, 1), nullable=(0, 1)),
            Field("warmup_tasks", array_of(ResponseTaskIds), (0, 1), nullable=(0, 1)),
            Field("topology_description_required", BOOL, (1, 1)),
            Field("endpoint_information_epoch", INT32, (0, 1)),
            Field(
                "partitions_by_user_endpoint",
                array_of(EndpointToPartitions),
                (0, 1),
                nullable=(0, 1),
            ),
        ),
    )
