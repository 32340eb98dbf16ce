"""Reading a log: every offset of every batch, bounds, gaps, timestamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_fixtures import (
    EPOCH,
    NOW,
    SMALL,
    append,
    batch_of,
    contents,
    fill,
    open_log,
    replicate,
)

from ottla.protocol.faults import CorruptBatch, Fault, OffsetOutOfRange
from ottla.protocol.records.batch import batches, is_crc_valid, read_header
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from ottla.storage.log.read import TRIMMED_BYTES_MIN
from ottla.storage.scrub.batch_check import DamagedRange
from simulation.disk import SimDisk

ALL = 1 << 30


def fetched(log: Log, offset: int, bytes_max: int = ALL, **bounds) -> list[tuple[int, int]]:
    """First and last offset of each whole batch of one read."""
    part = log.read(offset, bytes_max, upto=bounds.pop("upto", log.log_end_offset), **bounds)
    data = part.file.pread(part.length, part.position) if part.length else b""
    assert len(data) == part.length
    found = [(header.base_offset, header.last_offset) for _, header in batches(data)]
    assert not found or found[0][0] == part.base_offset
    return found


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_every_offset_of_every_batch_can_be_fetched(sizes) -> None:
    """Also in the middle of a batch: the whole batch is returned, and nothing before it."""
    log = open_log(SimDisk())
    spans, at = [], 0
    for size in sizes:
        append(log, *[b"x" * 20] * size)
        spans.append((at, at + size - 1))
        at += size
    for first, last in spans:
        for offset in range(first, last + 1):
            assert fetched(log, offset)[0] == (first, last)
    assert fetched(log, at) == []


@given(st.lists(st.integers(1, 4), min_size=1, max_size=25), st.data())
def test_read_returns_nothing_at_or_after_the_bound(sizes, data) -> None:
    log = open_log(SimDisk())
    ends = []
    for size in sizes:
        append(log, *[b"x" * 30] * size)
        ends.append(log.log_end_offset)
    upto = data.draw(st.integers(0, log.log_end_offset + 2))
    offset = data.draw(st.integers(0, log.log_end_offset))
    got = []
    position = offset
    while part := fetched(log, position, upto=upto):
        got += part
        position = part[-1][1] + 1
        if position > log.log_end_offset - 1:
            break
    wanted = [end for end in ends if offset < end <= upto] if offset < upto else []
    assert [last + 1 for _, last in got] == wanted


def test_large_batch_that_does_not_fit_is_not_sent_in_part() -> None:
    """The reader would discard the part and fetch the whole batch again."""
    log = open_log(SimDisk(), LogConfig())
    for _ in range(5):
        append(log, b"x" * 100_000)
    size = log.segments[0].size // 5
    for whole in range(1, 5):
        for more in (0, 1, TRIMMED_BYTES_MIN, size - 1):
            assert log.read(0, whole * size + more, upto=5).length == whole * size
    assert log.read(0, 5 * size + 50_000, upto=5).length == 5 * size
    assert log.read(1, size + 50_000, upto=5) == log.read(1, size, upto=5)
    assert log.read(0, 1, upto=5).length == size


@given(st.lists(st.integers(1, 60_000), min_size=1, max_size=12), st.data())
def test_reader_of_any_batch_sizes_gets_everything_with_little_waste(sizes, data) -> None:
    log = open_log(SimDisk(), LogConfig())
    for size in sizes:
        append(log, b"x" * size)
    bytes_max = data.draw(st.integers(1, 200_000))
    at, got = 0, []
    while part := fetched(log, at, bytes_max):
        found = log.read(at, bytes_max, upto=log.log_end_offset)
        whole = sum(_size(log, last) for _, last in part)
        assert found.length == whole or found.length < TRIMMED_BYTES_MIN
        got += part
        at = part[-1][1] + 1
    assert got == [(i, i) for i in range(len(sizes))]


def _size(log: Log, offset: int) -> int:
    found = log.segments[0].find(offset)
    assert found is not None
    return found.header.size


def test_damaged_index_never_cuts_the_first_batch() -> None:
    """Not even if it points at bytes that look like a batch that does not fit."""
    log = open_log(SimDisk(), LogConfig())
    looks_like_one = build_batch([Record(0, NOW, None, b"y" * 150_000)])[:61]
    append(log, looks_like_one + b"x" * 100_000)
    for _ in range(3):
        append(log, b"x" * 100_000)
    segment = log.segments[0]
    first, *_ = segment.batches_from(0)
    data = segment.file.pread(first.header.size, 0)
    wrong = data.index(bytes(looks_like_one))
    segment.offset_index._tail[:] = [(1, wrong)]
    assert log.read(0, first.header.size + 20_000, upto=4).length == first.header.size
    for nowhere in (10, first.header.size - 1, first.header.size + 1):
        segment.offset_index._tail[:] = [(1, nowhere)]
        assert log.read(0, first.header.size + 20_000, upto=4).length >= first.header.size


def test_slice_is_cut_at_bytes_max_but_never_inside_its_first_batch() -> None:
    log = open_log(SimDisk(), LogConfig())
    fill(log, 10)
    size = log.segments[0].size // 10
    assert log.read(0, size * 2 + 5, upto=10).length == size * 2 + 5
    assert log.read(0, 1, upto=10).length == size
    assert log.read(0, 0, upto=10).length == size
    assert log.read(0, size - 1, upto=10, minimum_one=False).length == 0
    assert log.read(0, size, upto=10, minimum_one=False).length == size


def test_slice_is_a_file_position_and_not_a_copy() -> None:
    log = open_log(SimDisk(), LogConfig())
    fill(log, 3)
    part = log.read(1, ALL, upto=3)
    assert part.file is log.segments[0].file
    assert part.base_offset == 1


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = open_log(SimDisk())
    fill(log, 20)
    log.set_high_watermark(20)
    log.advance_log_start(7)
    for offset in (-1, 0, 6, 21, 1 << 62):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, ALL, upto=20)
    assert fetched(log, 7)[0] == (7, 7)
    assert fetched(log, 20) == []


def test_read_in_a_gap_returns_the_next_batch_also_in_a_later_segment() -> None:
    log = open_log(SimDisk())
    replicate(log, 0, b"a" * 100)
    replicate(log, 10, b"b" * 100)
    replicate(log, 50, b"c" * 300)
    log.roll()
    replicate(log, 90, b"d")
    assert len(log.segments) > 1
    expected = {0: 0, 1: 10, 10: 10, 11: 50, 50: 50, 51: 90, 90: 90}
    assert {at: fetched(log, at)[0][0] for at in expected} == expected
    assert fetched(log, 91) == []
    assert fetched(log, 51, upto=90) == []
    assert fetched(log, 11, upto=40) == []


def test_batch_that_reaches_past_the_bound_is_not_returned() -> None:
    log = open_log(SimDisk(), LogConfig())
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    assert fetched(log, 0, upto=2) == []
    assert fetched(log, 0, upto=3) == [(0, 2)]
    assert fetched(log, 1, upto=4) == [(0, 2), (3, 3)]


def test_bit_flip_in_an_old_segment_is_never_served_as_good() -> None:
    """A bit flipped after offset and epoch: an error, or bytes with a wrong CRC."""
    size = len(batch_of(b"value-000000"))
    for position in [*range(8, 12), *range(16, size)]:
        disk = SimDisk(seed=position)
        log = open_log(disk)
        fill(log, 20)
        path, first = log.segments[1].path, log.segments[1].base_offset
        log.close()
        disk.rot(path, position)
        log = open_log(disk, checkpoint=LogCheckpoint(is_clean=True))
        with pytest.raises(Fault):
            read_as_a_consumer(log, first)


def read_as_a_consumer(log: Log, offset: int) -> None:
    part = log.read(offset, 1, upto=log.log_end_offset)
    data = part.file.pread(part.length, part.position)
    if not is_crc_valid(data, 0, read_header(data)):
        raise CorruptBatch("CRC does not match")


# -- timestamps -------------------------------------------------------------------------------


def brute_force(log: Log, timestamp: int):
    everything = []
    for segment in log.segments:
        for found in segment.batches_from(0):
            data = segment.file.pread(found.header.size, found.position)
            everything += read_records(data)
    return next(
        (
            (r.timestamp, r.offset)
            for r in everything
            if r.timestamp >= timestamp and r.offset >= log.log_start_offset
        ),
        None,
    )


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=25),
    st.integers(0, 10),
)
def test_first_record_not_older_is_found_whatever_the_order(batches_of_stamps, start) -> None:
    log = open_log(SimDisk())
    for stamps in batches_of_stamps:
        records = [Record(at, NOW + t, b"k", b"x" * 25) for at, t in enumerate(stamps)]
        log.append_as_leader(build_batch(records), leader_epoch=EPOCH, now=NOW)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(min(start, log.log_end_offset))
    for stamp in range(-1, 22):
        found = log.offset_for_timestamp(NOW + stamp)
        assert (found and found[:2]) == brute_force(log, NOW + stamp)
        assert found is None or found.leader_epoch == EPOCH
    stamps = [stamp for each in batches_of_stamps for stamp in each]
    largest = max(stamps)
    assert log.max_timestamp()[:2] == (NOW + largest, stamps.index(largest))


def test_there_is_no_offset_for_a_timestamp_in_an_empty_log() -> None:
    log = open_log(SimDisk())
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


def test_records_without_a_timestamp_have_no_largest() -> None:
    log = open_log(SimDisk())
    batch = batch_of(b"a", timestamp=-1)
    log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW)
    assert log.max_timestamp() is None
    assert log.segments[0].largest.timestamp == -1


def test_reads_work_after_a_clean_restart_with_nothing_in_memory() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = list(enumerate(fill(log, 30)))
    log.close()
    log = open_log(disk, SMALL)
    assert contents(log) == expected


def test_damaged_header_is_reported_to_the_reader() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=1 << 20))
    fill(log, 5)
    size = log.segments[0].size // 5
    disk.rot(log.segments[0].path, 2 * size + 8)  # the length
    with pytest.raises(CorruptBatch):
        log.read(2, ALL, upto=5)


def test_damaged_header_is_reported_to_a_reader_that_scans_over_it() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=1 << 20))
    fill(log, 5)
    size = log.segments[0].size // 5
    disk.rot(log.segments[0].path, 2 * size + 8)  # the length
    assert log.read(4, ALL, upto=5).position == 4 * size  # one of the newest: no scan
    log.segments[0].forget_recent()
    with pytest.raises(CorruptBatch):
        log.read(4, ALL, upto=5)


# -- the newest batches, read at once --------------------------------------------------


@given(st.lists(st.integers(1, 4), min_size=1, max_size=25), st.integers(0, 6), st.data())
def test_newest_batches_read_at_once_are_those_that_a_read_locates(sizes, cut, data) -> None:
    log = open_log(SimDisk())
    for size in sizes:
        append(log, *[b"x" * 30] * size)
    log.truncate_to(max(0, log.log_end_offset - cut))
    append(log, b"y" * 30)
    offset = data.draw(st.integers(max(0, log.log_end_offset - 12), log.log_end_offset + 1))
    upto = data.draw(st.integers(max(0, log.log_end_offset - 6), log.log_end_offset + 1))
    bytes_max = data.draw(st.sampled_from([0, 100, 200, ALL]))
    found = log.read_recent(offset, upto, bytes_max)
    if found is not None:
        part = log.read(offset, bytes_max, upto=upto, minimum_one=False)
        assert found == part.file.pread(part.length, part.position)
        assert found


def test_newest_batch_is_read_at_once() -> None:
    log = open_log(SimDisk())
    for value in (b"a", b"b", b"c"):
        append(log, value)
    end = log.log_end_offset

    def values(offset: int, upto: int, bytes_max: int = ALL) -> list[bytes | None] | None:
        found = log.read_recent(offset, upto, bytes_max)
        return None if found is None else [each.value for each in read_all(found)]

    assert values(end - 1, end) == [b"c"]
    assert values(end - 2, end) == [b"b", b"c"]
    assert values(end - 2, end - 1) == [b"b"]
    assert values(end, end) is None
    assert values(end - 1, end + 1) is None
    assert values(end - 1, end, 10) is None


def read_all(data: bytes) -> list[Record]:
    return [
        record
        for start, header in batches(data)
        for record in read_records(data[start : start + header.size])
    ]


@pytest.mark.parametrize(
    ("at", "replaced"), [(16, b"\1"), (0, b"\xff" * 8), (11, b"\x42"), (23, b"\xff" * 4)]
)
def test_damaged_newest_batch_is_left_to_a_read(at, replaced) -> None:
    log = open_log(SimDisk())
    append(log, b"a")
    append(log, b"b")
    segment = log.segments[-1]
    newest = segment.size - len(batch_of(b"b"))
    assert log.read_recent(1, 2, ALL) is not None
    segment.file.pwrite(replaced, newest + at)
    assert log.read_recent(1, 2, ALL) is None


def test_failed_disk_is_left_to_a_read() -> None:
    log = open_log(SimDisk())
    append(log, b"a")
    log._health.fail(OSError("broken"))
    assert log.read_recent(0, 1, ALL) is None


def test_newest_batch_in_a_damaged_range_is_left_to_a_read() -> None:
    log = open_log(SimDisk())
    append(log, b"a")
    log.damaged_ranges.add(log.segments[-1], DamagedRange(0, 10, 0, 1, "test"))
    assert log.read_recent(0, 1, ALL) is None
