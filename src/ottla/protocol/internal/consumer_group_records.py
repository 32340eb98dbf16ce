"""Records of ``__consumer_offsets`` about consumer groups (KIP-848).

A group's epoch, its target assignment and each member's current assignment are separate
records, so that one heartbeat writes only what it changes.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class ConsumerGroupMetadataKey(Message):
    """The id of a consumer group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=3,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class ConsumerGroupMetadataValue(Message):
    """The epoch of a consumer group.

    Version 0, flexible from 0.
    """

    epoch: int = 0
    metadata_hash: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=3,
        fields=(
            Field("epoch", INT32, (0, 0)),
            Field("metadata_hash", INT64, (0, 0), tag=0, tagged=(0, 0)),
        ),
    )


class ConsumerGroupPartitionMetadataKey(Message):
    """The id of a consumer group; no longer written.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=4,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class PartitionMetadata(Message):
    """Part of `ConsumerGroupPartitionMetadataValue`."""

    partition: int = 0
    racks: list[str] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition", INT32, (0, 0)),
            Field("racks", array_of(STRING), (0, 0)),
        ),
    )


class TopicMetadata(Message):
    """Part of `ConsumerGroupPartitionMetadataValue`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: int = 0
    partition_metadata: list[PartitionMetadata] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("topic_name", STRING, (0, 0)),
            Field("num_partitions", INT32, (0, 0)),
            Field("partition_metadata", array_of(PartitionMetadata), (0, 0)),
        ),
    )


class ConsumerGroupPartitionMetadataValue(Message):
    """The partitions a group subscribed to; no longer written.

    Version 0, flexible from 0.
    """

    topics: list[TopicMetadata] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=4,
        fields=(Field("topics", array_of(TopicMetadata), (0, 0)),),
    )


class ConsumerGroupMemberMetadataKey(Message):
    """The member of a consumer group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=5,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class ClassicProtocol(Message):
    """Part of `ConsumerGroupMemberMetadataValue`."""

    name: str = ""
    metadata: bytes = b""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("metadata", BYTES, (0, 0)),
        ),
    )


class ClassicMemberMetadata(Message):
    """Part of `ConsumerGroupMemberMetadataValue`."""

    session_timeout_ms: int = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("session_timeout_ms", INT32, (0, 0)),
            Field("supported_protocols", array_of(ClassicProtocol), (0, 0)),
        ),
    )


class ConsumerGroupMemberMetadataValue(Message):
    """The metadata a member sent when it joined.

    Version 0, flexible from 0.
    """

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default_factory=ClassicMemberMetadata
    )

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=5,
        fields=(
            Field("instance_id", STRING, (0, 0), nullable=(0, 0)),
            Field("rack_id", STRING, (0, 0), nullable=(0, 0)),
            Field("client_id", STRING, (0, 0)),
            Field("client_host", STRING, (0, 0)),
            Field("subscribed_topic_names", array_of(STRING), (0, 0)),
            Field("subscribed_topic_regex", STRING, (0, 0), nullable=(0, 0)),
            Field("rebalance_timeout_ms", INT32, (0, 0)),
            Field("server_assignor", STRING, (0, 0), nullable=(0, 0)),
            Field(
                "classic_member_metadata",
                struct_of(ClassicMemberMetadata),
                (0, 0),
                nullable=(0, 0),
                tag=0,
                tagged=(0, 0),
            ),
        ),
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """The id of a consumer group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=6,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment.

    Version 0, flexible from 0.
    """

    assignment_epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=6,
        fields=(Field("assignment_epoch", INT32, (0, 0)),),
    )


class ConsumerGroupTargetAssignmentMemberKey(Message):
    """The member of a consumer group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=7,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class TopicPartition(Message):
    """Part of `ConsumerGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The target assignment of a member.

    Version 0, flexible from 0.
    """

    topic_partitions: list[TopicPartition] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=7,
        fields=(Field("topic_partitions", array_of(TopicPartition), (0, 0)),),
    )


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """The member of a consumer group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=8,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class TopicPartitions(Message):
    """Part of `ConsumerGroupCurrentMemberAssignmentValue`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions of a member, and those it has yet to revoke.

    Version 0, flexible from 0.
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[TopicPartitions] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=8,
        fields=(
            Field("member_epoch", INT32, (0, 0)),
            Field("previous_member_epoch", INT32, (0, 0)),
            Field("state", INT8, (0, 0)),
            Field("assigned_partitions", array_of(TopicPartitions), (0, 0)),
            Field("partitions_pending_revocation", array_of(TopicPartitions), (0, 0)),
        ),
    )


class ConsumerGroupRegularExpressionKey(Message):
    """The regular expression of a consumer group.

    Version 0.
    """

    group_id: str = ""
    regular_expression: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=16,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("regular_expression", STRING, (0, 0)),
        ),
    )


class ConsumerGroupRegularExpressionValue(Message):
    """The topics an expression matched when it was last resolved.

    Version 0, flexible from 0.
    """

    topics: list[str] = field(default_factory=list)
    version: int = 0
    timestamp: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=16,
        fields=(
            Field("topics", array_of(STRING), (0, 0)),
            Field("version", INT64, (0, 0)),
            Field("timestamp", INT64, (0, 0)),
        ),
    )
