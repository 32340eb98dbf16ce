"""The three index files: Kafka's bytes, and searches that agree with a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.ports import OpenMode
from ottla.storage.log import sparse_index
from ottla.storage.log.offset_index import OffsetIndex
from ottla.storage.log.time_index import TimeIndex, TimestampOffset
from ottla.storage.log.transaction_index import AbortedTxn, CorruptIndex, TransactionIndex
from simulation.disk import SimDisk

BASE = 5000


def fresh_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/log")
    return disk


def offset_index(disk: SimDisk, bytes_max: int = 1 << 20) -> OffsetIndex:
    index = OffsetIndex(disk, "/log/00000000000000005000.index", BASE, bytes_max)
    index.reset()
    return index


def time_index(disk: SimDisk, bytes_max: int = 1 << 20) -> TimeIndex:
    index = TimeIndex(disk, "/log/00000000000000005000.timeindex", BASE, bytes_max)
    index.reset()
    return index


def txn_index(disk: SimDisk) -> TransactionIndex:
    return TransactionIndex(disk, "/log/00000000000000005000.txnindex", BASE, exists=False)


def test_golden_bytes_of_an_offset_index() -> None:
    disk = fresh_disk()
    index = offset_index(disk)
    index.append(BASE + 1, 4097)
    index.append(BASE + 0x01020304, 0x0A0B0C0D)
    index.write_out()
    assert disk.read(index.path).hex() == "0000000100001001010203040a0b0c0d"


def test_golden_bytes_of_a_time_index() -> None:
    disk = fresh_disk()
    index = time_index(disk)
    index.append(TimestampOffset(0x0102030405060708, BASE + 9))
    index.write_out()
    assert disk.read(index.path).hex() == "010203040506070800000009"


def test_golden_bytes_of_a_transaction_index() -> None:
    disk = fresh_disk()
    index = txn_index(disk)
    index.append(AbortedTxn(7, BASE + 1, BASE + 3, BASE + 4))
    assert disk.read(index.path).hex() == (
        "0000" "0000000000000007" "0000000000001389" "000000000000138b" "000000000000138c"
    )  # fmt: skip


def test_there_is_no_transaction_index_file_until_a_transaction_aborts() -> None:
    disk = fresh_disk()
    index = txn_index(disk)
    assert index.is_empty
    assert not disk.exists(index.path)


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=40)


@given(steps, st.integers(1, 7), st.integers(0, 400))
def test_lookup_finds_the_last_entry_at_or_below(steps, tail, target) -> None:
    """For any split of the entries between disk and memory."""
    entries, offset, position = [(BASE, 0)], BASE, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_index, "TAIL_ENTRIES_MAX", tail)
        patch.setattr(sparse_index, "_BLOCK_ENTRIES", 3)
        index = offset_index(fresh_disk())
        for offset_step, position_step in steps:
            offset, position = offset + offset_step, position + position_step
            index.append(offset, position)
            entries.append((offset, position))
        expected = max(entry for entry in entries if entry[0] <= BASE + target)
        assert index.lookup(BASE + target) == expected
        assert len(index) == len(steps)
        assert [(BASE + relative, at) for relative, at in index.entries()] == entries[1:]


@given(steps, st.integers(1, 7), st.integers(0, 400))
def test_truncation_drops_entries_at_or_above_the_offset(steps, tail, cut) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_index, "TAIL_ENTRIES_MAX", tail)
        patch.setattr(sparse_index, "_BLOCK_ENTRIES", 3)
        disk = fresh_disk()
        offsets, times = offset_index(disk), time_index(disk)
        offset = position = 0
        kept = []
        for offset_step, position_step in steps:
            offset, position = offset + offset_step, position + position_step
            offsets.append(BASE + offset, position)
            times.append(TimestampOffset(position, BASE + offset))
            if offset < cut:
                kept.append((offset, position))
        offsets.truncate_to(BASE + cut)
        times.truncate_to(BASE + cut)
        assert list(offsets.entries()) == kept
        assert list(times.entries()) == [(at, relative) for relative, at in kept]
        # The next entry follows directly, in memory and in the file.
        offsets.append(BASE + 1000, 5000)
        offsets.write_out()
        assert len(disk.read(offsets.path)) == 8 * (len(kept) + 1)


def test_time_index_takes_only_growing_timestamps() -> None:
    index = time_index(fresh_disk())
    for entry in [(10, 1), (10, 2), (9, 3), (11, 4), (-1, 5)]:
        index.append(TimestampOffset(entry[0], BASE + entry[1]))
    assert list(index.entries()) == [(10, 1), (11, 4)]


def test_index_is_full_at_segment_index_bytes_and_the_time_index_one_earlier() -> None:
    disk = fresh_disk()
    offsets, times = offset_index(disk, bytes_max=20), time_index(disk, bytes_max=25)
    assert not offsets.is_full and not times.is_full
    offsets.append(BASE + 1, 1)
    times.append(TimestampOffset(1, BASE + 1))
    assert not offsets.is_full and times.is_full
    offsets.append(BASE + 2, 2)
    assert offsets.is_full


def test_entries_stay_in_memory_until_there_are_many() -> None:
    disk = fresh_disk()
    index = offset_index(disk)
    for at in range(sparse_index.TAIL_ENTRIES_MAX - 1):
        index.append(BASE + at, at)
    assert disk.size(index.path) == 0
    index.append(BASE + 600, 600)
    assert disk.size(index.path) == 8 * sparse_index.TAIL_ENTRIES_MAX


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_collecting_aborted_transactions_agrees_with_a_scan(spans, start, length) -> None:
    """Markers in order; a transaction begins any distance before its marker."""
    disk = fresh_disk()
    index = txn_index(disk)
    marker, everything = BASE, []
    for back, step in spans:
        marker += step
        txn = AbortedTxn(1, marker - back, marker, marker + 1)
        everything.append(txn)
        index.append(txn)
    first, upto = BASE + start, BASE + start + length
    found, is_complete = index.collect(first, upto)
    wanted = [t for t in everything if t.last_offset >= first and t.first_offset < upto]
    if is_complete:
        # Later ones have a last stable offset at or above the end of the range.
        assert found == wanted[: len(found)]
        assert all(t.last_stable_offset > upto for t in wanted[len(found) :])
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        lambda data: data + data,
    ],
    ids=["short", "long", "zeroed", "absurd", "not growing"],
)
def test_damaged_transaction_index_raises(damage) -> None:
    disk = fresh_disk()
    index = txn_index(disk)
    index.append(AbortedTxn(7, BASE + 1, BASE + 3, BASE + 4))
    data = damage(disk.read(index.path))
    file = disk.open(index.path, OpenMode.CREATE)
    file.truncate(0)
    file.pwrite(data, 0)
    again = TransactionIndex(disk, index.path, BASE, exists=True)
    with pytest.raises(CorruptIndex):
        list(again.entries())
