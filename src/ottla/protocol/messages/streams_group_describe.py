"""StreamsGroupDescribe: the messages of api key 89, versions 0-1.

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


class StreamsGroupDescribeRequest(Message):
    """StreamsGroupDescribe request, versions 0-1, flexible from 0."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    include_topology_description: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=89,
        fields=(
            Field("group_ids", array_of(STRING), (0, 1)),
            Field("include_authorized_operations", BOOL, (0, 1)),
            Field("include_topology_description", BOOL, (1, 1)),
        ),
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


class Subtopology(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    source_topics: list[str] = field(default_factory=list)
    repartition_sink_topics: list[str] = field(default_factory=list)
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("source_topics", array_of(STRING), (0, 1)),
            Field("repartition_sink_topics", array_of(STRING), (0, 1)),
            Field("state_changelog_topics", array_of(TopicInfo), (0, 1)),
            Field("repartition_source_topics", array_of(TopicInfo), (0, 1)),
        ),
    )


class Topology(Message):
    """Part of the message, in versions 0-1."""

    epoch: int = 0
    subtopologies: list[Subtopology] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("epoch", INT32, (0, 1)),
            Field("subtopologies", array_of(Subtopology), (0, 1), nullable=(0, 1)),
        ),
    )


class Endpoint(Message):
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


class TaskIds(Message):
    """Part of the message, in versions 0-1."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 1)),
            Field("partitions", array_of(INT32), (0, 1)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 0-1."""

    active_tasks: list[TaskIds] = field(default_factory=list)
    standby_tasks: list[TaskIds] = field(default_factory=list)
    warmup_tasks: list[TaskIds] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("active_tasks", array_of(TaskIds), (0, 1)),
            Field("standby_tasks", array_of(TaskIds), (0, 1)),
            Field("warmup_tasks", array_of(TaskIds), (0, 1)),
        ),
    )


class Member(Message):
    """Part of the message, in versions 0-1."""

    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = field(default_factory=list)
    task_offsets: list[TaskOffset] = field(default_factory=list)
    task_end_offsets: list[TaskOffset] = field(default_factory=list)
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    is_classic: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 1)),
            Field("member_epoch", INT32, (0, 1)),
            Field("instance_id", STRING, (0, 1), nullable=(0, 1)),
            Field("rack_id", STRING, (0, 1), nullable=(0, 1)),
            Field("client_id", STRING, (0, 1)),
            Field("client_host", STRING, (0, 1)),
            Field("topology_epoch", INT32, (0, 1)),
            Field("process_id", STRING, (0, 1)),
            Field("user_endpoint", struct_of(Endpoint), (0, 1), nullable=(0, 1)),
            Field("client_tags", array_of(KeyValue), (0, 1)),
            Field("task_offsets", array_of(TaskOffset), (0, 1)),
            Field("task_end_offsets", array_of(TaskOffset), (0, 1)),
            Field("assignment", struct_of(Assignment), (0, 1)),
            Field("target_assignment", struct_of(Assignment), (0, 1)),
            Field("is_classic", BOOL, (0, 1)),
        ),
    )


class TopologyDescriptionNode(Message):
    """Part of the message, in versions 1-1."""

    name: str = ""
    node_type: int = 0
    source_topics: list[str] = field(default_factory=list)
    sink_topic: str | None = None
    stores: list[str] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 1)),
            Field("node_type", INT8, (1, 1)),
            Field("source_topics", array_of(STRING), (1, 1)),
            Field("sink_topic", STRING, (1, 1), nullable=(1, 1)),
            Field("stores", array_of(STRING), (1, 1)),
            Field("successors", array_of(STRING), (1, 1)),
        ),
    )


class TopologyDescriptionSubtopology(Message):
    """Part of the message, in versions 1-1."""

    subtopology_id: str = ""
    nodes: list[TopologyDescriptionNode] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (1, 1)),
            Field("nodes", array_of(TopologyDescriptionNode), (1, 1)),
        ),
    )


class TopologyDescriptionGlobalStore(Message):
    """Part of the message, in versions 1-1."""

    source: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("source", struct_of(TopologyDescriptionNode), (1, 1)),
            Field("processor", struct_of(TopologyDescriptionNode), (1, 1)),
        ),
    )


class TopologyDescription(Message):
    """Part of the message, in versions 1-1."""

    subtopologies: list[TopologyDescriptionSubtopology] = field(default_factory=list)
    global_stores: list[TopologyDescriptionGlobalStore] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopologies", array_of(TopologyDescriptionSubtopology), (1, 1)),
            Field("global_stores", array_of(TopologyDescriptionGlobalStore), (1, 1)),
        ),
    )


class DescribedGroup(Message):
    """Part of the message, in versions 0-1."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = -2147483648
    topology_description: TopologyDescription | None = None
    topology_description_status: int = 0
    assignor_name: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("group_id", STRING, (0, 1)),
            Field("group_state", STRING, (0, 1)),
            Field("group_epoch", INT32, (0, 1)),
            Field("assignment_epoch", INT32, (0, 1)),
            Field("topology", struct_of(Topology), (0, 1), nullable=(0, 1)),
            Field("members", array_of(Member), (0, 1)),
            Field("authorized_operations", INT32, (0, 1)),
            Field("topology_description", struct_of(TopologyDescription), (1, 1), nullable=(1, 1)),
            Field("topology_description_status", INT8, (1, 1)),
            Field("assignor_name", STRING, (1, 1), nullable=(1, 1)),
        ),
    )


class StreamsGroupDescribeResponse(Message):
    """StreamsGroupDescribe response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=89,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("groups", array_of(DescribedGroup), (0, 1)),
        ),
    )
