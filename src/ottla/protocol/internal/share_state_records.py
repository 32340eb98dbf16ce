"""Records of ``__share_group_state``: a snapshot, and updates since (KIP-932)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from msgspec import field

from ottla.protocol.internal.framing import CoordinatorRecord, Pair, decode_pair
from ottla.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Buffer, Uuid


class ShareSnapshotKey(Message):
    """The id of a share partition.

    Version 0.
    """

    group_id: str = ""
    topic_id: Uuid = ZERO_UUID
    partition: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=0,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topic_id", UUID, (0, 0)),
            Field("partition", INT32, (0, 0)),
        ),
    )


class StateBatch(Message):
    """Part of several of these records."""

    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("first_offset", INT64, (0, 0)),
            Field("last_offset", INT64, (0, 0)),
            Field("delivery_state", INT8, (0, 0)),
            Field("delivery_count", INT16, (0, 0)),
        ),
    )


class ShareSnapshotValue(Message):
    """The whole state of a share partition.

    Version 0, flexible from 0.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    create_timestamp: int = 0
    write_timestamp: int = 0
    state_batches: list[StateBatch] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=0,
        fields=(
            Field("snapshot_epoch", INT32, (0, 0)),
            Field("state_epoch", INT32, (0, 0)),
            Field("leader_epoch", INT32, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
            Field("delivery_complete_count", INT32, (0, 0), tag=0, tagged=(0, 0)),
            Field("create_timestamp", INT64, (0, 0)),
            Field("write_timestamp", INT64, (0, 0)),
            Field("state_batches", array_of(StateBatch), (0, 0)),
        ),
    )


class ShareUpdateKey(Message):
    """The id of a share partition.

    Version 0.
    """

    group_id: str = ""
    topic_id: Uuid = ZERO_UUID
    partition: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        api_key=1,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("topic_id", UUID, (0, 0)),
            Field("partition", INT32, (0, 0)),
        ),
    )


class ShareUpdateValue(Message):
    """Changes since the snapshot of the same epoch.

    Version 0, flexible from 0.
    """

    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: list[StateBatch] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=1,
        fields=(
            Field("snapshot_epoch", INT32, (0, 0)),
            Field("leader_epoch", INT32, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
            Field("delivery_complete_count", INT32, (0, 0), tag=0, tagged=(0, 0)),
            Field("state_batches", array_of(StateBatch), (0, 0)),
        ),
    )


SHARE_STATE_RECORDS: Mapping[int, Pair] = MappingProxyType(
    {
        0: Pair(ShareSnapshotKey, ShareSnapshotValue),
        1: Pair(ShareUpdateKey, ShareUpdateValue),
    }
)


def decode_share_state_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord:
    """Read a record of ``__share_group_state``. Raises `ProtocolFault`."""
    return decode_pair(SHARE_STATE_RECORDS, key, value)
