"""Framing of internal records, against bytes that Apache Kafka 4.2.1 wrote."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from ottla.protocol.internal.framing import (
    CoordinatorRecord,
    UnknownRecordType,
    Versioned,
    encode_framed,
    encode_key,
    encode_value,
)
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.metadata_cluster import NoOpRecord
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.internal.metadata_topics import PartitionChangeRecord, TopicRecord
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.internal.principal import (
    DefaultPrincipalData,
    decode_principal,
    encode_principal,
)
from ottla.protocol.internal.remote_log_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
    decode_remote_log_record,
)
from ottla.protocol.internal.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_share_state_record,
)
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.internal.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_record,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid


def uuid(high: int, low: int) -> Uuid:
    return Uuid(high.to_bytes(8) + low.to_bytes(8))


ORDERS = TopicIdPartitionEntry(name="orders", id=uuid(1, 2), partition=3)

METADATA = [
    (
        TopicRecord(name="orders", topic_id=uuid(1, 2)),
        0,
        "010200076f72646572730000000000000001000000000000000200",
    ),
    (
        PartitionChangeRecord(partition_id=3, topic_id=uuid(1, 2), leader=7, isr=[7, 8]),
        2,
        "0105020000000300000000000000010000000000000002020009030000000700000008010400000007",
    ),
    (NoOpRecord(), 0, "01140000"),
]
REMOTE = [
    (
        RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=ORDERS, id=uuid(5, 6)),
            broker_id=1,
            event_timestamp_ms=77,
            remote_log_segment_state=1,
        ),
        0,
        "010100076f7264657273000000000000000100000000000000020000000300000000000000000500"
        "000000000000060000000001000000000000004d000100",
    ),
    (
        RemotePartitionDeleteMetadataRecord(
            topic_id_partition=ORDERS, broker_id=1, event_timestamp_ms=77
        ),
        0,
        "010200076f726465727300000000000000010000000000000002000000030000000001000000000000004d"
        "0000",
    ),
]


@pytest.mark.parametrize(("message", "version", "text"), METADATA)
def test_metadata_records_are_framed_as_in_kafka(message: Message, version: int, text: str) -> None:
    record = Versioned(message, version)
    assert encode_framed(record).hex() == text
    assert decode_metadata_record(bytes.fromhex(text)) == record
    assert decode_metadata_record(memoryview(bytes.fromhex(text))) == record


@pytest.mark.parametrize(("message", "version", "text"), REMOTE)
def test_remote_log_records_are_framed_as_in_kafka(
    message: Message, version: int, text: str
) -> None:
    record = Versioned(message, version)
    assert encode_framed(record).hex() == text
    assert decode_remote_log_record(bytes.fromhex(text)) == record


COORDINATORS = [
    (
        decode_group_record,
        OffsetCommitKey(group="g", topic="t", partition=3),
        Versioned(
            OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=99), 3
        ),
        "000100016700017400000003",
        "0003000000000000002a0000000500016d0000000000000063",
    ),
    (
        decode_group_record,
        ConsumerGroupMetadataKey(group_id="g"),
        Versioned(ConsumerGroupMetadataValue(epoch=9), 0),
        "0003000167",
        "00000000000900",
    ),
    (
        decode_group_record,
        StreamsGroupTopologyKey(group_id="g"),
        Versioned(StreamsGroupTopologyValue(epoch=9), 0),
        "0017000167",
        "0000000000090100",
    ),
    (
        decode_transaction_record,
        TransactionLogKey(transactional_id="tx"),
        Versioned(
            TransactionLogValue(
                producer_id=11,
                producer_epoch=2,
                transaction_timeout_ms=1000,
                transaction_status=0,
                transaction_partitions=None,
            ),
            1,
        ),
        "000000027478",
        "0001000000000000000b0002000003e800000000000000000000000000000000000000",
    ),
    (
        decode_share_state_record,
        ShareSnapshotKey(group_id="g", topic_id=uuid(1, 2), partition=4),
        Versioned(
            ShareSnapshotValue(snapshot_epoch=1, state_epoch=2, leader_epoch=3, start_offset=4), 0
        ),
        "00000001670000000000000001000000000000000200000004",
        "00000000000100000002000000030000000000000004000000000000000000000000000000000100",
    ),
    (
        decode_share_state_record,
        ShareUpdateKey(group_id="g", topic_id=uuid(1, 2), partition=4),
        Versioned(ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=4), 0),
        "00010001670000000000000001000000000000000200000004",
        "0000000000010000000300000000000000040100",
    ),
]


@pytest.mark.parametrize(("read", "key", "value", "key_text", "value_text"), COORDINATORS)
def test_coordinator_records_are_framed_as_in_kafka(
    read: Callable[[bytes, bytes], CoordinatorRecord],
    key: Message,
    value: Versioned,
    key_text: str,
    value_text: str,
) -> None:
    encoded = encode_value(value)
    assert encoded is not None
    assert (encode_key(key).hex(), encoded.hex()) == (key_text, value_text)
    found = read(bytes.fromhex(key_text), bytes.fromhex(value_text))
    assert found == CoordinatorRecord(key, value)


def test_tombstone_has_a_key_and_no_value() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert encode_value(None) is None
    assert decode_group_record(encode_key(key), None) == CoordinatorRecord(key, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01",
        "0102",
        "00140000",  # frame version 0
        "02140000",  # frame version 2
        "0106000000",  # a number given up
        "017f0000",  # a number not given yet
        "01020100",  # a version not given yet
        "01140000ff",  # bytes behind
        "01ffffffff0f00",  # a type out of range
        "01ffffffffffff00",  # a varint too long
    ],
)
def test_invalid_frames_are_rejected(text: str) -> None:
    with pytest.raises(ProtocolFault):
        decode_metadata_record(bytes.fromhex(text))


def test_unknown_record_type_error_names_the_type() -> None:
    with pytest.raises(UnknownRecordType) as caught:
        decode_metadata_record(bytes.fromhex("017f0000"))
    assert caught.value.record_type == 127
    with pytest.raises(UnknownRecordType) as caught:
        decode_group_record(bytes.fromhex("00630001"), None)
    assert caught.value.record_type == 99


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", None),
        (b"\0", None),
        (b"\xff\xff\0\0", None),
        (bytes.fromhex("0003000167"), b""),
        (bytes.fromhex("0003000167"), b"\0"),
        (bytes.fromhex("0003000167"), bytes.fromhex("00010000000900")),
        (bytes.fromhex("0003000167"), bytes.fromhex("ffff0000000900")),
        (bytes.fromhex("000300ff67"), None),
    ],
)
def test_invalid_pairs_are_rejected(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolFault):
        decode_group_record(key, value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
def test_arbitrary_bytes_raise_only_protocol_faults(data: bytes) -> None:
    attempts = (
        lambda: decode_metadata_record(b"\x01" + data),
        lambda: decode_group_record(b"\x00" + data, data),
        lambda: decode_principal(data),
    )
    for attempt in attempts:
        try:
            assert attempt() is not None
        except ProtocolFault:
            continue


def test_principal_is_encoded_with_its_version() -> None:
    ann = DefaultPrincipalData(type="User", name="ann", token_authenticated=True)
    assert encode_principal(ann).hex() == "0000055573657204616e6e0100"
    assert decode_principal(encode_principal(ann)) == ann
    for bad in (b"", b"\0", b"\0\1" + encode_principal(ann)[2:], encode_principal(ann) + b"\0"):
        with pytest.raises(ProtocolFault):
            decode_principal(bad)
