"""Records of ``__consumer_offsets`` about committed offsets and classic groups."""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BYTES,
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


class LegacyOffsetCommitKey(Message):
    """The key of a committed offset, as very old brokers wrote it.

    Version 0.
    """

    group: str = ""
    topic: str = ""
    partition: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=0,
        fields=(
            Field("group", STRING, (0, 0)),
            Field("topic", STRING, (0, 0)),
            Field("partition", INT32, (0, 0)),
        ),
    )


class LegacyOffsetCommitValue(Message):
    """A committed offset, as very old brokers wrote it.

    Version 0.
    """

    offset: int = 0
    metadata: str = ""
    commit_timestamp: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=0,
        fields=(
            Field("offset", INT64, (0, 0)),
            Field("metadata", STRING, (0, 0)),
            Field("commit_timestamp", INT64, (0, 0)),
        ),
    )


class OffsetCommitKey(Message):
    """The group and partition of a committed offset.

    Version 0.
    """

    group: str = ""
    topic: str = ""
    partition: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=1,
        fields=(
            Field("group", STRING, (0, 0)),
            Field("topic", STRING, (0, 0)),
            Field("partition", INT32, (0, 0)),
        ),
    )


class OffsetCommitValue(Message):
    """A committed offset.

    Versions 0-4, flexible from 4.
    """

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=4,
        api_key=1,
        fields=(
            Field("offset", INT64, (0, 4)),
            Field("leader_epoch", INT32, (3, 4)),
            Field("metadata", STRING, (0, 4)),
            Field("commit_timestamp", INT64, (0, 4)),
            Field("expire_timestamp", INT64, (1, 1)),
            Field("topic_id", UUID, (4, 4), tag=0, tagged=(4, 4)),
        ),
    )


class GroupMetadataKey(Message):
    """The id of a classic group.

    Version 0.
    """

    group: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=2,
        fields=(Field("group", STRING, (0, 0)),),
    )


class MemberMetadata(Message):
    """Part of `GroupMetadataValue`."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    session_timeout: int = 0
    subscription: bytes = b""
    assignment: bytes = b""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("member_id", STRING, (0, 4)),
            Field("group_instance_id", STRING, (3, 4), nullable=(3, 4)),
            Field("client_id", STRING, (0, 4)),
            Field("client_host", STRING, (0, 4)),
            Field("rebalance_timeout", INT32, (1, 4)),
            Field("session_timeout", INT32, (0, 4)),
            Field("subscription", BYTES, (0, 4)),
            Field("assignment", BYTES, (0, 4)),
        ),
    )


class GroupMetadataValue(Message):
    """A classic group: generation, leader and members.

    Versions 0-4, flexible from 4.
    """

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int = -1
    members: list[MemberMetadata] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=4,
        api_key=2,
        fields=(
            Field("protocol_type", STRING, (0, 4)),
            Field("generation", INT32, (0, 4)),
            Field("protocol", STRING, (0, 4), nullable=(0, 4)),
            Field("leader", STRING, (0, 4), nullable=(0, 4)),
            Field("current_state_timestamp", INT64, (2, 4)),
            Field("members", array_of(MemberMetadata), (0, 4)),
        ),
    )
