"""Records of ``__consumer_offsets`` about share groups (KIP-932)."""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class ShareGroupMemberMetadataKey(Message):
    """The member of a share group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=10,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class ShareGroupMemberMetadataValue(Message):
    """The metadata a member sent when it joined.

    Version 0, flexible from 0.
    """

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=10,
        fields=(
            Field("rack_id", STRING, (0, 0), nullable=(0, 0)),
            Field("client_id", STRING, (0, 0)),
            Field("client_host", STRING, (0, 0)),
            Field("subscribed_topic_names", array_of(STRING), (0, 0)),
        ),
    )


class ShareGroupMetadataKey(Message):
    """The id of a share group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=11,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class ShareGroupMetadataValue(Message):
    """The epoch of a share group.

    Version 0, flexible from 0.
    """

    epoch: int = 0
    metadata_hash: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=11,
        fields=(
            Field("epoch", INT32, (0, 0)),
            Field("metadata_hash", INT64, (0, 0)),
        ),
    )


class ShareGroupTargetAssignmentMetadataKey(Message):
    """The id of a share group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=12,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class ShareGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment.

    Version 0, flexible from 0.
    """

    assignment_epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=12,
        fields=(Field("assignment_epoch", INT32, (0, 0)),),
    )


class ShareGroupTargetAssignmentMemberKey(Message):
    """The member of a share group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=13,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class TopicPartition(Message):
    """Part of `ShareGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class ShareGroupTargetAssignmentMemberValue(Message):
    """The target assignment of a member.

    Version 0, flexible from 0.
    """

    topic_partitions: list[TopicPartition] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=13,
        fields=(Field("topic_partitions", array_of(TopicPartition), (0, 0)),),
    )


class ShareGroupCurrentMemberAssignmentKey(Message):
    """The member of a share group.

    Version 0.
    """

    group_id: str = ""
    member_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=14,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
        ),
    )


class TopicPartitions(Message):
    """Part of `ShareGroupCurrentMemberAssignmentValue`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class ShareGroupCurrentMemberAssignmentValue(Message):
    """The partitions a member reads.

    Version 0, flexible from 0.
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=14,
        fields=(
            Field("member_epoch", INT32, (0, 0)),
            Field("previous_member_epoch", INT32, (0, 0)),
            Field("state", INT8, (0, 0)),
            Field("assigned_partitions", array_of(TopicPartitions), (0, 0)),
        ),
    )


class ShareGroupStatePartitionMetadataKey(Message):
    """The id of a share group.

    Version 0.
    """

    group_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=15,
        fields=(Field("group_id", STRING, (0, 0)),),
    )


class TopicPartitionsInfo(Message):
    """Part of `ShareGroupStatePartitionMetadataValue`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("topic_name", STRING, (0, 0)),
            Field("partitions", array_of(INT32), (0, 0)),
        ),
    )


class TopicInfo(Message):
    """Part of `ShareGroupStatePartitionMetadataValue`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (0, 0)),
            Field("topic_name", STRING, (0, 0)),
        ),
    )


class ShareGroupStatePartitionMetadataValue(Message):
    """Share partitions whose state exists, is being created or is being deleted.

    Version 0, flexible from 0.
    """

    initializing_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    initialized_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    deleting_topics: list[TopicInfo] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=15,
        fields=(
            Field("initializing_topics", array_of(TopicPartitionsInfo), (0, 0)),
            Field("initialized_topics", array_of(TopicPartitionsInfo), (0, 0)),
            Field("deleting_topics", array_of(TopicInfo), (0, 0)),
        ),
    )
