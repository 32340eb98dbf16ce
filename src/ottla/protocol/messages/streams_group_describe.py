"""StreamsGroupDescribe: the messages of api key 89, versions 0-0.

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
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)


class StreamsGroupDescribeRequest(Message):
    """StreamsGroupDescribe request, versions 0-0, flexible from 0."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=89,
        fields=(
            Field("group_ids", array_of(STRING), (0, 0)),
            Field("include_authorized_operations", BOOL, (0, 0)),
        ),
    )


class KeyValue(Message):
    """Part of the message, in versions 0-0."""

    key: str = ""
    value: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 0)),
            Field("value", STRING, (0, 0)),
        ),
    )


class TopicInfo(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[KeyValue] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", INT32, (0, 0)),
            Field("replication_factor", INT16, (0, 0)),
            Field("topic_configs", array_of(KeyValue), (0, 0)),
        ),
    )


class Subtopology(Message):
    """Part of the message, in versions 0-0."""

    subtopology_id: str = ""
    source_topics: list[str] = field(default_factory=list)
    repartition_sink_topics: list[str] = field(default_factory=list)
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("source_topics", array_of(STRING), (0, 0)),
            Field("repartition_sink_topics", array_of(STRING), (0, 0)),
            Field("state_changelog_topics", array_of(TopicInfo), (0, 0)),
            Field("repartition_source_topics", array_of(TopicInfo), (0, 0)),
        ),
    )


class Topology(Message):
    """Part of the message, in versions 0-0."""

    epoch: int = 0
    subtopologies: list[Subtopology] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("epoch", INT32, (0, 0)),
            Field("subtopologies", array_of(Subtopology), (0, 0), nullable=(0, 0)),
        ),
    )


class Endpoint(Message):
    """Part of the message, in versions 0-0."""

    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("host", STRING, (0, 0)),
            Field("port", UINT16, (0, 0)),
        ),
    )


class TaskOffset(Message):
    """Part of the message, in versions 0-0."""

    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("partition", INT32, (0, 0)),
            Field("offset", INT64, (0, 0)),
        ),
    )


class TaskIds(Message):
    """Part of the message, in versions 0-0."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class Assignment(Message):
    """Part of the message, in versions 0-0."""

    active_tasks: list[TaskIds] = field(default_factory=list)
    standby_tasks: list[TaskIds] = field(default_factory=list)
    warmup_tasks: list[TaskIds] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("active_tasks", array_of(TaskIds), (0, 0)),
            Field("standby_tasks", array_of(TaskIds), (0, 0)),
            Field("warmup_tasks", array_of(TaskIds), (0, 0)),
        ),
    )


class Member(Message):
    """Part of the message, in versions 0-0."""

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
            Field("member_id", STRING, (0, 0)),
            Field("member_epoch", INT32, (0, 0)),
            Field("instance_id", STRING, (0, 0), nullable=(0, 0)),
            Field("rack_id", STRING, (0, 0), nullable=(0, 0)),
            Field("client_id", STRING, (0, 0)),
            Field("client_host", STRING, (0, 0)),
            Field("topology_epoch", INT32, (0, 0)),
            Field("process_id", STRING, (0, 0)),
            Field("user_endpoint", struct_of(Endpoint), (0, 0), nullable=(0, 0)),
            Field("client_tags", array_of(KeyValue), (0, 0)),
            Field("task_offsets", array_of(TaskOffset), (0, 0)),
            Field("task_end_offsets", array_of(TaskOffset), (0, 0)),
            Field("assignment", struct_of(Assignment), (0, 0)),
            Field("target_assignment", struct_of(Assignment), (0, 0)),
            Field("is_classic", BOOL, (0, 0)),
        ),
    )


class DescribedGroup(Message):
    """Part of the message, in versions 0-0."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("group_id", STRING, (0, 0)),
            Field("group_state", STRING, (0, 0)),
            Field("group_epoch", INT32, (0, 0)),
            Field("assignment_epoch", INT32, (0, 0)),
            Field("topology", struct_of(Topology), (0, 0), nullable=(0, 0)),
            Field("members", array_of(Member), (0, 0)),
            Field("authorized_operations", INT32, (0, 0)),
        ),
    )


class StreamsGroupDescribeResponse(Message):
    """StreamsGroupDescribe response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=89,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("groups", array_of(DescribedGroup), (0, 0)),
        ),
    )
