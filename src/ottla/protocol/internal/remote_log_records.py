"""Records of ``__remote_log_metadata``: segments in remote storage and their states (KIP-405)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from msgspec import field

from ottla.protocol.internal.framing import Versioned, decode_framed
from ottla.protocol.schema import (
    BOOL,
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
from ottla.protocol.types import ZERO_UUID, Buffer, Uuid


class TopicIdPartitionEntry(Message):
    """Part of several of these records."""

    name: str = ""
    id: Uuid = ZERO_UUID
    partition: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("id", UUID, (0, 0)),
            Field("partition", INT32, (0, 0)),
        ),
    )


class RemoteLogSegmentIdEntry(Message):
    """Part of several of these records."""

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id_partition", struct_of(TopicIdPartitionEntry), (0, 0)),
            Field("id", UUID, (0, 0)),
        ),
    )


class SegmentLeaderEpochEntry(Message):
    """Part of several of these records."""

    leader_epoch: int = 0
    offset: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_epoch", INT32, (0, 0)),
            Field("offset", INT64, (0, 0)),
        ),
    )


class RemoteLogSegmentMetadataRecord(Message):
    """A segment is being copied, or has been.

    Version 0, flexible from 0.
    """

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    start_offset: int = 0
    end_offset: int = 0
    broker_id: int = 0
    max_timestamp_ms: int = 0
    event_timestamp_ms: int = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0
    txn_index_empty: bool = False

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=0,
        fields=(
            Field("remote_log_segment_id", struct_of(RemoteLogSegmentIdEntry), (0, 0)),
            Field("start_offset", INT64, (0, 0)),
            Field("end_offset", INT64, (0, 0)),
            Field("broker_id", INT32, (0, 0)),
            Field("max_timestamp_ms", INT64, (0, 0)),
            Field("event_timestamp_ms", INT64, (0, 0)),
            Field("segment_leader_epochs", array_of(SegmentLeaderEpochEntry), (0, 0)),
            Field("segment_size_in_bytes", INT32, (0, 0)),
            Field("custom_metadata", BYTES, (0, 0), nullable=(0, 0)),
            Field("remote_log_segment_state", INT8, (0, 0)),
            Field("txn_index_empty", BOOL, (0, 0), tag=0, tagged=(0, 0)),
        ),
    )


class RemoteLogSegmentMetadataUpdateRecord(Message):
    """A segment changed its state.

    Version 0, flexible from 0.
    """

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    broker_id: int = 0
    event_timestamp_ms: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=1,
        fields=(
            Field("remote_log_segment_id", struct_of(RemoteLogSegmentIdEntry), (0, 0)),
            Field("broker_id", INT32, (0, 0)),
            Field("event_timestamp_ms", INT64, (0, 0)),
            Field("custom_metadata", BYTES, (0, 0), nullable=(0, 0)),
            Field("remote_log_segment_state", INT8, (0, 0)),
        ),
    )


class RemotePartitionDeleteMetadataRecord(Message):
    """The remote part of a partition is to be, or has been, deleted.

    Version 0, flexible from 0.
    """

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    broker_id: int = 0
    event_timestamp_ms: int = 0
    remote_partition_delete_state: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=2,
        fields=(
            Field("topic_id_partition", struct_of(TopicIdPartitionEntry), (0, 0)),
            Field("broker_id", INT32, (0, 0)),
            Field("event_timestamp_ms", INT64, (0, 0)),
            Field("remote_partition_delete_state", INT8, (0, 0)),
        ),
    )


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    """A segment in a snapshot file of one partition.

    Version 0, flexible from 0.
    """

    segment_id: Uuid = ZERO_UUID
    start_offset: int = 0
    end_offset: int = 0
    broker_id: int = 0
    max_timestamp_ms: int = 0
    event_timestamp_ms: int = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0
    txn_index_empty: bool = False

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=3,
        fields=(
            Field("segment_id", UUID, (0, 0)),
            Field("start_offset", INT64, (0, 0)),
            Field("end_offset", INT64, (0, 0)),
            Field("broker_id", INT32, (0, 0)),
            Field("max_timestamp_ms", INT64, (0, 0)),
            Field("event_timestamp_ms", INT64, (0, 0)),
            Field("segment_leader_epochs", array_of(SegmentLeaderEpochEntry), (0, 0)),
            Field("segment_size_in_bytes", INT32, (0, 0)),
            Field("custom_metadata", BYTES, (0, 0), nullable=(0, 0)),
            Field("remote_log_segment_state", INT8, (0, 0)),
            Field("txn_index_empty", BOOL, (0, 0), tag=0, tagged=(0, 0)),
        ),
    )


REMOTE_LOG_RECORDS: Mapping[int, type[Message]] = MappingProxyType(
    {
        0: RemoteLogSegmentMetadataRecord,
        1: RemoteLogSegmentMetadataUpdateRecord,
        2: RemotePartitionDeleteMetadataRecord,
        3: RemoteLogSegmentMetadataSnapshotRecord,
    }
)


def decode_remote_log_record(buffer: Buffer) -> Versioned:
    """Read a value of ``__remote_log_metadata``. Raises `ProtocolFault`."""
    return decode_framed(REMOTE_LOG_RECORDS, buffer)
