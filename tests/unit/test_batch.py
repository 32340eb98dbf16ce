"""The batch header: what it says, what is refused, what a patch changes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    batches,
    is_crc_valid,
    patch_append_time,
    read_header,
)
from ottla.protocol.records.crc import crc32c
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from record_tools import patch_offset

RECORDS = [Record(7, 1000, b"a", b"1"), Record(8, 1005, b"b", b"2"), Record(9, 990, None, None)]


def sample(**fields: object) -> bytearray:
    return build_batch(RECORDS, **({"base_offset": 7, "leader_epoch": 3} | fields))  # type: ignore[arg-type]


def header_of(**changes: int) -> BatchHeader:
    return read_header(sample())._replace(**changes)


def test_the_header_says_what_was_written() -> None:
    batch = sample(producer=Producer(40, 2, 11), is_transactional=True)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 9, 10)
    assert (header.size, header.length) == (len(batch), len(batch) - 12)
    assert (header.leader_epoch, header.magic, header.records_count) == (3, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (40, 2, 11)
    assert (header.last_sequence, header.has_producer_id) == (13, True)
    assert header.is_transactional and not header.is_control


def test_a_batch_without_a_producer_has_no_sequence() -> None:
    header = header_of()
    assert not header.has_producer_id
    assert header.last_sequence == -1


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6)],
)
def test_after_the_highest_sequence_comes_0(base: int, delta: int, last: int) -> None:
    assert header_of(base_sequence=base, last_offset_delta=delta).last_sequence == last


@pytest.mark.parametrize("codec", Compression)
def test_attributes_are_read_bit_by_bit(codec: Compression) -> None:
    flags = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
    for bits in range(16):
        header = header_of(attributes=codec | bits << 3)
        assert header.compression is codec
        assert [getattr(header, flag) for flag in flags] == [bool(bits >> i & 1) for i in range(4)]
        assert header.delete_horizon_ms == (1000 if bits & 8 else None)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_34_codecs_that_nobody_has_are_refused(codec: int) -> None:
    with pytest.raises(InvalidRecord):
        _ = header_of(attributes=codec).compression
    batch = sample()
    batch[22] = codec
    with pytest.raises(InvalidRecord):
        read_records(batch)


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_30_any_format_but_2_is_refused(magic: int) -> None:
    batch = sample()
    batch[16] = magic
    for piece in (batch, batch[:17], batch[:34]):
        with pytest.raises(UnsupportedMagic) as caught:
            read_header(piece)
        assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        with pytest.raises(UnsupportedMagic):
            list(batches(piece))


def test_30_a_short_message_of_format_1_is_refused_by_its_format() -> None:
    message = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 1000, -1, -1)
    assert len(message) < HEADER_BYTES
    with pytest.raises(UnsupportedMagic):
        read_header(message)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 14, 48])
def test_31_a_length_below_a_header_is_corrupt(length: int) -> None:
    batch = sample()
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch) as caught:
        read_header(batch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    for piece in (batch, batch[:30]):
        with pytest.raises(CorruptBatch):
            list(batches(piece))


def test_a_length_of_exactly_a_header_is_a_batch() -> None:
    batch = build_batch([], last_offset_delta=4)
    assert len(batch) == HEADER_BYTES
    assert read_header(batch).next_offset == 5
    assert read_records(batch) == []


@pytest.mark.parametrize("size", [0, 8, 16, 17, 60])
def test_31_less_than_a_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(sample()[:size])


def test_31_a_length_beyond_the_bytes_is_corrupt_to_a_reader() -> None:
    batch = sample()
    with pytest.raises(CorruptBatch):
        read_records(batch[:-1])
    assert not is_crc_valid(batch[:-1], 0, read_header(batch))


def test_29_every_flipped_bit_that_the_crc_covers_is_found() -> None:
    batch = sample()
    header = read_header(batch)
    assert is_crc_valid(batch, 0, header)
    for bit in range(21 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not is_crc_valid(batch, 0, header)
        batch[bit // 8] ^= 1 << bit % 8


def test_offset_and_epoch_are_patched_in_place_and_the_crc_holds() -> None:
    batch = bytearray(b"..") + sample()
    before = bytes(batch)
    patch_offset(batch, 2, 2**40, 9)
    header = read_header(batch, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert is_crc_valid(batch, 2, header)
    assert batch[:2] == before[:2] and batch[10:14] == before[10:14] and batch[18:] == before[18:]
    assert [record.offset for record in read_records(batch, 2)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_append_time_becomes_the_time_of_every_record() -> None:
    batch = sample(is_transactional=True)
    patch_append_time(batch, 0, read_header(batch), 5000)
    header = read_header(batch)
    assert header.is_log_append_time and header.is_transactional
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
    assert is_crc_valid(batch, 0, header)
    assert {record.timestamp for record in read_records(batch)} == {5000}


def test_append_time_may_be_written_at_once() -> None:
    batch = sample(append_time=5000)
    assert read_header(batch).is_log_append_time
    assert {record.timestamp for record in read_records(batch)} == {5000}


def test_a_delete_horizon_stands_for_the_base_and_keeps_the_timestamps() -> None:
    batch = sample(delete_horizon_ms=77_000)
    assert read_header(batch).delete_horizon_ms == 77_000
    assert read_records(batch) == RECORDS


def test_batches_are_found_one_behind_the_other() -> None:
    first, second = sample(), sample(base_offset=0)
    buffer = b"xx" + first + second
    found = list(batches(buffer, 2))
    assert [position for position, _ in found] == [2, 2 + len(first)]
    assert [header.base_offset for _, header in found] == [7, 0]
    assert len(list(batches(buffer, 2, 2 + len(first)))) == 1
    assert len(list(batches(buffer, 2, 2 + len(first) + len(second) - 1))) == 1


def test_a_cut_off_tail_ends_the_batches() -> None:
    batch = sample()
    for cut in range(1, len(batch)):
        assert len(list(batches(batch + batch[:cut]))) == 1


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, lambda b: memoryview(bytes(b))])
def test_every_kind_of_buffer_will_do(form) -> None:
    buffer = form(sample())
    header = read_header(buffer)
    assert is_crc_valid(buffer, 0, header)
    assert read_records(buffer) == RECORDS
    assert len(list(batches(buffer))) == 1


def test_crc32c_of_the_known_words() -> None:
    assert crc32c(b"123456789", 0, 9) == 0xE3069283
    assert crc32c(b"", 0, 0) == 0
    assert crc32c(bytes(32), 0, 32) == 0x8A9136AA


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3_000_000), st.integers(0, 70_000), st.integers(0, 255))
def test_crc32c_is_the_same_however_the_range_is_covered(size: int, start: int, fill: int) -> None:
    writable = bytearray([fill]) * (start + size + 5)
    writable[start : start + 3] = b"abc"
    end = start + size
    readonly = bytes(writable)
    expected = crc32c(readonly[start:end], 0, size)
    assert crc32c(writable, start, end) == expected
    assert crc32c(readonly, start, end) == expected
    writable.append(0)  # nothing holds on to the buffer
