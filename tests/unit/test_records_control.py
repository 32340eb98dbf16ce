"""Control batches: transaction markers and control types."""

import pytest

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.control import (
    ControlType,
    EndTxnMarker,
    build_control_batch,
    build_end_txn_marker,
    parse_control_type,
    parse_end_txn_marker,
    read_control_type,
    read_end_txn_marker,
)
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch

# Written by Apache Kafka 4.2.1: MemoryRecords.withEndTransactionMarker(42, 1_700_000_000_000,
# 5, 4000, 3, new EndTransactionMarker(COMMIT, 9)).
GOLDEN_COMMIT = bytes.fromhex(
    "000000000000002a0000004200000005023a9760040030000000000000018bcfe56800000001"
    "8bcfe568000000000000000fa00003ffffffff000000012000000008000000010c00000000000900"
)
PRODUCER = Producer(4000, 3)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_round_trips(is_commit: bool) -> None:
    marker = EndTxnMarker(is_commit, coordinator_epoch=9)
    batch = build_end_txn_marker(marker, PRODUCER, 1000, base_offset=42, leader_epoch=5)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.records_count) == (42, 5, 1)
    assert read_end_txn_marker(batch) == marker
    assert read_control_type(batch) == (ControlType.COMMIT if is_commit else ControlType.ABORT)


def test_marker_bytes_equal_kafkas() -> None:
    batch = build_end_txn_marker(
        EndTxnMarker(True, 9), PRODUCER, 1_700_000_000_000, base_offset=42, leader_epoch=5
    )
    assert batch == GOLDEN_COMMIT


def test_marker_has_no_sequence() -> None:
    batch = build_end_txn_marker(EndTxnMarker(True, 9), Producer(4000, 3, 17), 1000)
    assert read_header(batch).base_sequence == -1


def test_fields_of_a_later_version_are_ignored() -> None:
    record = Record(0, 0, b"\0\1\0\1 more", b"\0\1\0\0\0\7 more")
    assert parse_end_txn_marker(record) == EndTxnMarker(True, 7)


def test_control_type_of_every_kind_is_parsed() -> None:
    for kind in ControlType:
        if kind is not ControlType.UNKNOWN:
            batch = build_control_batch(kind, [b"a", b"b"], 1000, base_offset=7)
            assert read_control_type(batch) is kind
            assert [record.offset for record in read_records(batch)] == [7, 8]


def test_control_type_of_a_later_kafka_is_unknown() -> None:
    assert parse_control_type(b"\0\0\0\7") is ControlType.UNKNOWN
    assert parse_control_type(b"\0\0\xff\xfe") is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_invalid_control_key_is_rejected(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_control_type(key)


@pytest.mark.parametrize("value", [None, b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_invalid_marker_is_rejected(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_end_txn_marker(Record(0, 0, b"\0\0\0\0", value))


def test_other_control_records_are_rejected_as_markers() -> None:
    with pytest.raises(InvalidRecord):
        parse_end_txn_marker(Record(0, 0, b"\0\0\0\2", b"\0\0\0\0\0\0"))


def test_data_batch_is_rejected_as_control_batch() -> None:
    with pytest.raises(InvalidRecord):
        read_control_type(build_batch([Record(0, 0, b"\0\0\0\0", b"")]))


def test_empty_control_batch_is_rejected() -> None:
    empty = build_batch([], is_control=True, last_offset_delta=0)
    with pytest.raises(InvalidRecord):
        read_control_type(empty)
