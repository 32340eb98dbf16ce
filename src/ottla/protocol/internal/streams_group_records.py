"""Records of ``__consumer_offsets`` about streams groups (KIP-1071)."""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
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


class StreamsGroupMetadataKey(Message):
    """The id of a streams group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=17,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class LastAssignmentConfig(Message):
    """Part of `StreamsGroupMetadataValue`."""

    key: str = ""
    value: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 0)),
            Field("value", STRING, (0, 0)),
        ),
    )


class StreamsGroupMetadataValue(Message):
    """The epoch of a streams group, and what its assignment was based on.

    Version 0, flexible from 0.
    """

    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=17,
        fields=(
            Field("epoch", INT32, (0, 0)),
            Field("metadata_hash", INT64, (0, 0)),
            Field("validated_topology_epoch", INT32, (0, 0), tag=0, tagged=(0, 0)),
            Field(
                "last_assignment_configs",
                array_of(LastAssignmentConfig),
                (0, 0),
                nullable=(0, 0),
                tag=1,
                tagged=(0, 0),
            ),
        ),
    )


class StreamsGroupMemberMetadataKey(Message):
    """The member of a streams group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=19,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class Endpoint(Message):
    """Part of `StreamsGroupMemberMetadataValue`."""

    host: str = ""
    port: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("host", STRING, (0, 0)),
            Field("port", UINT16, (0, 0)),
        ),
    )


class KeyValue(Message):
    """Part of `StreamsGroupMemberMetadataValue`."""

    key: str = ""
    value: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 0)),
            Field("value", STRING, (0, 0)),
        ),
    )


class StreamsGroupMemberMetadataValue(Message):
    """The metadata a member sent when it joined.

    Version 0, flexible from 0.
    """

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=19,
        fields=(
            Field("instance_id", STRING, (0, 0), nullable=(0, 0)),
            Field("rack_id", STRING, (0, 0), nullable=(0, 0)),
            Field("client_id", STRING, (0, 0)),
            Field("client_host", STRING, (0, 0)),
            Field("rebalance_timeout_ms", INT32, (0, 0)),
            Field("topology_epoch", INT32, (0, 0)),
            Field("process_id", STRING, (0, 0)),
            Field("user_endpoint", struct_of(Endpoint), (0, 0), nullable=(0, 0)),
            Field("client_tags", array_of(KeyValue), (0, 0)),
        ),
    )


class StreamsGroupTargetAssignmentMetadataKey(Message):
    """The id of a streams group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=20,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class StreamsGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment.

    Version 0, flexible from 0.
    """

    assignment_epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=20,
        fields=(Field("assignment_epoch", INT32, (0, 0)),),
    )


class StreamsGroupTargetAssignmentMemberKey(Message):
    """The member of a streams group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=21,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class StreamsGroupTargetAssignmentMemberTaskIds(Message):
    """Part of `StreamsGroupTargetAssignmentMemberValue`."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class StreamsGroupTargetAssignmentMemberValue(Message):
    """The target tasks of a member.

    Version 0, flexible from 0.
    """

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(default_factory=list)
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(default_factory=list)
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=21,
        fields=(
            Field("active_tasks", array_of(StreamsGroupTargetAssignmentMemberTaskIds), (0, 0)),
            Field("standby_tasks", array_of(StreamsGroupTargetAssignmentMemberTaskIds), (0, 0)),
            Field("warmup_tasks", array_of(StreamsGroupTargetAssignmentMemberTaskIds), (0, 0)),
        ),
    )


class StreamsGroupCurrentMemberAssignmentKey(Message):
    """The member of a streams group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=22,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class StreamsGroupCurrentMemberAssignmentTaskIds(Message):
    """Part of `StreamsGroupCurrentMemberAssignmentValue`."""

    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)
    assignment_epochs: list[int] | None = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
            Field(
                "assignment_epochs", array_of(INT32), (0, 0), nullable=(0, 0), tag=0, tagged=(0, 0)
            ),
        ),
    )


class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The tasks of a member, and those it has yet to revoke.

    Version 0, flexible from 0.
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(default_factory=list)
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(default_factory=list)
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(default_factory=list)
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        default_factory=list
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        default_factory=list
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        default_factory=list
    )

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=22,
        fields=(
            Field("member_epoch", INT32, (0, 0)),
            Field("previous_member_epoch", INT32, (0, 0)),
            Field("state", INT8, (0, 0)),
            Field("active_tasks", array_of(StreamsGroupCurrentMemberAssignmentTaskIds), (0, 0)),
            Field("standby_tasks", array_of(StreamsGroupCurrentMemberAssignmentTaskIds), (0, 0)),
            Field("warmup_tasks", array_of(StreamsGroupCurrentMemberAssignmentTaskIds), (0, 0)),
            Field(
                "active_tasks_pending_revocation",
                array_of(StreamsGroupCurrentMemberAssignmentTaskIds),
                (0, 0),
            ),
            Field(
                "standby_tasks_pending_revocation",
                array_of(StreamsGroupCurrentMemberAssignmentTaskIds),
                (0, 0),
            ),
            Field(
                "warmup_tasks_pending_revocation",
                array_of(StreamsGroupCurrentMemberAssignmentTaskIds),
                (0, 0),
            ),
        ),
    )


class StreamsGroupTopologyKey(Message):
    """The id of a streams group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=23,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class TopicConfig(Message):
    """Part of `StreamsGroupTopologyValue`."""

    key: str = ""
    value: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 0)),
            Field("value", STRING, (0, 0)),
        ),
    )


class TopicInfo(Message):
    """Part of `StreamsGroupTopologyValue`."""

    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[TopicConfig] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("partitions", INT32, (0, 0)),
            Field("replication_factor", INT16, (0, 0)),
            Field("topic_configs", array_of(TopicConfig), (0, 0)),
        ),
    )


class CopartitionGroup(Message):
    """Part of `StreamsGroupTopologyValue`."""

    source_topics: list[int] = field(default_factory=list)
    source_topic_regex: list[int] = field(default_factory=list)
    repartition_source_topics: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("source_topics", array_of(INT16), (0, 0)),
            Field("source_topic_regex", array_of(INT16), (0, 0)),
            Field("repartition_source_topics", array_of(INT16), (0, 0)),
        ),
    )


class Subtopology(Message):
    """Part of `StreamsGroupTopologyValue`."""

    subtopology_id: str = ""
    source_topics: list[str] = field(default_factory=list)
    source_topic_regex: list[str] = field(default_factory=list)
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)
    repartition_sink_topics: list[str] = field(default_factory=list)
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("source_topics", array_of(STRING), (0, 0)),
            Field("source_topic_regex", array_of(STRING), (0, 0)),
            Field("state_changelog_topics", array_of(TopicInfo), (0, 0)),
            Field("repartition_sink_topics", array_of(STRING), (0, 0)),
            Field("repartition_source_topics", array_of(TopicInfo), (0, 0)),
            Field("copartition_groups", array_of(CopartitionGroup), (0, 0)),
        ),
    )


class StreamsGroupTopologyValue(Message):
    """The subtopologies of a group, with their topics.

    Version 0, flexible from 0.
    """

    epoch: int = 0
    subtopologies: list[Subtopology] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=23,
        fields=(
            Field("epoch", INT32, (0, 0)),
            Field("subtopologies", array_of(Subtopology), (0, 0)),
        ),
    )
