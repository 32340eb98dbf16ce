"""The records of ``__remote_log_metadata``, as Kafka writes them. Pure.

Keys are null; a value is a frame version, the type of the record, its version and its fields
(`protocol/internal/remote_log_records.py`). All records of a user's partition are in one metadata
partition, chosen by a hash of its topic id and number.
"""

from ottla.client.partitioner import murmur2
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.remote_log_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode_remote_log_record,
)
from ottla.protocol.types import (
    Buffer,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicIdPartition,
)
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.tiering.segment_metadata import (
    PartitionDeleteState,
    PartitionDeletion,
    SegmentId,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

TOPIC = "__remote_log_metadata"

RemoteLogEvent = SegmentMetadata | SegmentUpdate | PartitionDeletion


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Return the metadata partition, of ``count``, that has the records of a partition.

    Kafka hashes Java's ``Objects.hash`` of the id's halves and the number, big-endian, by murmur2.
    """
    most, least = (int.from_bytes(half, "big") for half in _halves(partition.topic_id))
    combined = 1
    for part in (_long_hash(least), _long_hash(most), partition.partition):
        combined = (31 * combined + part) & 0xFFFFFFFF
    return (murmur2(combined.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _halves(value: bytes) -> tuple[bytes, bytes]:
    return value[:8], value[8:]


def _long_hash(value: int) -> int:
    return (value ^ (value >> 32)) & 0xFFFFFFFF


def encode_event(event: RemoteLogEvent) -> bytes:
    """Return the value of a record."""
    match event:
        case SegmentMetadata():
            message = _metadata_record(event)
        case SegmentUpdate():
            return encode_framed(
                Versioned(
                    RemoteLogSegmentMetadataUpdateRecord(
                        _id_entry(event.segment_id, event.topic),
                        event.broker_id,
                        event.event_timestamp,
                        event.custom,
                        event.state,
                    ),
                    0,
                )
            )
        case PartitionDeletion():
            return encode_framed(
                Versioned(
                    RemotePartitionDeleteMetadataRecord(
                        _partition_entry(event.partition, event.topic),
                        event.broker_id,
                        event.event_timestamp,
                        event.state,
                    ),
                    0,
                )
            )
    return encode_framed(Versioned(message, 0))


def _metadata_record(event: SegmentMetadata) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        _id_entry(event.segment_id, event.topic),
        event.start_offset,
        event.end_offset,
        event.broker_id,
        event.max_timestamp,
        event.event_timestamp,
        [SegmentLeaderEpochEntry(*entry) for entry in event.epochs],
        event.size,
        event.custom,
        event.state,
        event.is_txn_index_empty,
    )


def _id_entry(segment: SegmentId, topic: str) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(_partition_entry(segment.partition, topic), segment.id)


def _partition_entry(partition: TopicIdPartition, topic: str) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(topic, partition.topic_id, partition.partition)


def decode_event(value: Buffer) -> RemoteLogEvent:
    """Return what a record says. Raises `ProtocolFault`, ValueError for an unknown state."""
    record = decode_remote_log_record(value).message
    match record:
        case RemoteLogSegmentMetadataRecord():
            return _metadata(record)
        case RemoteLogSegmentMetadataUpdateRecord():
            return SegmentUpdate(
                *_segment_id(record.remote_log_segment_id),
                Millis(record.event_timestamp_ms),
                SegmentState(record.remote_log_segment_state),
                NodeId(record.broker_id),
                record.custom_metadata,
            )
        case RemotePartitionDeleteMetadataRecord():
            entry = record.topic_id_partition
            return PartitionDeletion(
                TopicIdPartition(entry.id, entry.partition),
                entry.name,
                PartitionDeleteState(record.remote_partition_delete_state),
                Millis(record.event_timestamp_ms),
                NodeId(record.broker_id),
            )
        case _:
            raise ValueError(f"{type(record).__name__} is not a record of the topic")


def _metadata(record: RemoteLogSegmentMetadataRecord) -> SegmentMetadata:
    segment, topic = _segment_id(record.remote_log_segment_id)
    return SegmentMetadata(
        segment,
        topic,
        Offset(record.start_offset),
        Offset(record.end_offset),
        Millis(record.max_timestamp_ms),
        NodeId(record.broker_id),
        Millis(record.event_timestamp_ms),
        record.segment_size_in_bytes,
        tuple(
            EpochEntry(LeaderEpoch(each.leader_epoch), Offset(each.offset))
            for each in record.segment_leader_epochs
        ),
        SegmentState(record.remote_log_segment_state),
        record.custom_metadata,
        record.txn_index_empty,
    )


def _segment_id(entry: RemoteLogSegmentIdEntry) -> tuple[SegmentId, str]:
    at = entry.topic_id_partition
    return SegmentId(TopicIdPartition(at.id, at.partition), entry.id), at.name
