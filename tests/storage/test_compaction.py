"""What compaction removes, and what it must keep."""

import pytest
from compacted_log import SECRET, CompactedLog, compacted, only

from ottla.protocol.faults import (
    CorruptBatch,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StorageFailed,
)
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Millis, Offset
from ottla.storage.cleaner.compactor import (
    STEP_BATCHES,
    CleaningAborted,
    CleaningRound,
    Memory,
    OffsetMapTooSmall,
    dirty_part,
)

pytestmark = pytest.mark.engine


def names(log: CompactedLog) -> list[str]:
    return log.disk.list("/data/t-0")


def step_by_step(log: CompactedLog) -> CleaningRound:
    dirty = dirty_part(log.log, log.checkpoint, log.clock.now())
    return CleaningRound(log.disk, log.log, dirty, log.memory, log.clock.now())


# -- keys ----------------------------------------------------------------------


def test_only_the_newest_record_of_a_key_stays_at_its_offset() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.put((b"b", b"2"))
    log.put((b"c", b"1"))
    log.roll()
    result = log.clean()
    assert log.pairs() == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert result.end_offset == 5
    assert (result.stats.records_read, result.stats.records_written) == (5, 3)


def test_active_segment_is_left_alone_and_does_not_count() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.put((b"a", b"2"))
    log.clean()
    assert log.pairs() == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_later_round_removes_records_that_an_earlier_one_kept() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"))
    log.roll()
    log.clean()
    log.put((b"a", b"2"))
    log.roll()
    assert log.clean().end_offset == 3
    assert log.pairs() == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_record_without_a_key_is_dropped_and_counted() -> None:
    log = compacted()
    log.put((None, b"1"), (b"a", b"1"))
    log.roll()
    assert log.clean().stats.records_without_key == 1
    assert log.pairs() == [(1, b"a", b"1")]


def test_empty_key_is_a_key() -> None:
    log = compacted()
    log.put((b"", b"1"), (b"", b"2"), (b"a", b""))
    log.roll()
    log.clean()
    assert log.pairs() == [(1, b"", b"2"), (2, b"a", b"")]


@pytest.mark.parametrize("codec", ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])
def test_rewritten_batch_keeps_its_codec_timestamps_and_headers(codec: str) -> None:
    log = compacted()
    pairs = [(b"k%d" % (at % 3), b"value" * 20) for at in range(9)]
    log.put(*pairs, compression=only(codec), timestamp=5000)
    log.roll()
    log.clean()
    (header,) = log.batches()
    assert header.compression is only(codec)
    assert (header.base_offset, header.last_offset) == (0, 8)
    assert [(r.offset, r.timestamp) for r in log.records()] == [(6, 5006), (7, 5007), (8, 5008)]
    assert header.max_timestamp == 5008


def test_largest_timestamp_is_that_of_the_records_left() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), timestamp=5000)
    log.put((b"c", b"2"), timestamp=1000)
    log.roll()
    log.clean()
    assert [header.max_timestamp for header in log.batches()] == [5001, 1000]
    assert log.log.segments[0].largest_timestamp == 5001


def test_log_append_time_stays_with_the_batch() -> None:
    log = compacted(is_log_append_time=True)
    log.put((b"a", b"1"), (b"a", b"2"))
    log.roll()
    log.clean()
    (header,) = log.batches()
    assert header.is_log_append_time
    assert header.max_timestamp == log.clock.wall
    assert log.records()[0].timestamp == log.clock.wall


def test_batch_that_loses_nothing_is_copied_byte_for_byte() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"), compression=only("ZSTD"))
    log.roll()
    before = log.log.segments[0].file.pread(10_000, 0)
    assert log.clean().stats.batches_copied == 1
    assert log.log.segments[0].file.pread(10_000, 0) == before


def test_reading_at_every_offset_finds_the_next_record_there_is() -> None:
    log = compacted()
    for at in range(20):
        log.put((b"k%d" % (at % 4), b"%d" % at))
        if at % 5 == 4:
            log.roll()
    log.clean()
    for offset in range(20):
        part = log.log.read(Offset(offset), 1 << 20, upto=Offset(20))
        first = read_records(part.file.pread(part.length, part.position))
        assert not first or first[-1].offset >= offset


# -- the cleanable part -------------------------------------------------------------------


def test_nothing_at_or_above_the_last_stable_offset_is_cleaned() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.put((b"a", b"2"), pid=1, txn=True)
    log.roll()
    log.put((b"a", b"3"))
    log.roll()
    assert log.clean().end_offset == 1
    assert len(log.pairs()) == 3


def test_nothing_above_the_high_watermark_is_cleaned() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.put((b"a", b"2"))
    log.roll()
    log.log.set_high_watermark(Offset(1))
    assert log.clean().end_offset == 1
    assert len(log.pairs()) == 2


def test_segment_younger_than_the_minimum_lag_waits() -> None:
    log = compacted(min_compaction_lag_ms=100)
    log.put((b"a", b"1"), timestamp=1000)
    log.roll()
    log.put((b"a", b"2"), timestamp=2000)
    log.roll()
    log.put((b"a", b"3"), timestamp=1000)
    log.roll()
    log.clean(now=2099)
    assert len(log.pairs()) == 3
    log.clean(now=2100)
    assert log.pairs() == [(2, b"a", b"3")]


def test_only_a_prefix_is_cleaned_if_the_map_is_full() -> None:
    log = compacted()
    for at in range(10):
        log.put((b"k%d" % at, b"1"))
    log.put(*[(b"k%d" % at, b"2") for at in range(10)])
    log.roll()
    log.memory = Memory(24 * 8, SECRET, load_factor=0.75)
    assert log.clean().end_offset == 6
    assert len(log.pairs()) == 20
    log.memory = Memory(24 * 100, SECRET)
    assert log.clean().end_offset == 20
    assert [offset for offset, _, _ in log.pairs()] == list(range(10, 20))


def test_map_too_small_for_one_batch_is_reported() -> None:
    log = compacted()
    log.put(*[(b"k%d" % at, b"1") for at in range(10)])
    log.roll()
    log.memory = Memory(24 * 8, SECRET)
    with pytest.raises(OffsetMapTooSmall):
        log.clean()


def test_partial_last_batch_never_hides_an_older_record() -> None:
    """The map holds some keys of the batch it stopped in; that batch keeps all records."""
    log = compacted()
    log.put((b"a", b"1"))
    log.put((b"a", b"2"), (b"b", b"2"), (b"c", b"2"))
    log.roll()
    log.memory = Memory(24 * 3, SECRET, load_factor=0.67)
    log.clean()
    assert [(o, k) for o, k, _ in log.pairs()] == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_cleaning_a_clean_log_changes_nothing() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.clean()
    before = [segment.base_offset for segment in log.log.segments]
    assert log.clean().stats.bytes_read == 0
    assert [segment.base_offset for segment in log.log.segments] == before


# -- segments ------------------------------------------------------------------


def test_small_neighbours_become_one_segment() -> None:
    log = compacted()
    for at in range(6):
        log.put((b"k%d" % at, b"1"))
        log.roll()
    log.clean()
    assert [segment.base_offset for segment in log.log.segments] == [0, 6]
    assert len(log.pairs()) == 6


def test_segments_that_are_too_large_together_are_not_merged() -> None:
    log = compacted(segment_bytes=300)
    for at in range(8):
        log.put((b"k%d" % at, b"x" * 30))
    log.clean()
    assert all(segment.size <= 300 for segment in log.log.segments)
    assert [offset for offset, _, _ in log.pairs()] == list(range(8))


def test_end_of_a_round_stays_known_when_its_records_are_removed() -> None:
    log = compacted()
    log.put((b"a", None))
    log.roll()
    log.clean(now=5000)
    log.clean_again(now=50_000)
    assert log.pairs() == []
    assert [(h.base_offset, h.records_count) for h in log.batches()] == [(0, 0)]


def test_files_are_the_cleaned_segments_and_nothing_is_left_over() -> None:
    log = compacted()
    for at in range(3):
        log.put((b"a", b"%d" % at))
        log.roll()
    log.clean()
    log.clock.mono += 10**9
    log.log.purge_deleted()
    assert [name for name in names(log) if not name.startswith("leader")] == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.index",
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "00000000000000000003.timeindex",
    ]


# -- tombstones ----------------------------------------------------------------


def test_tombstone_stays_until_its_horizon_has_passed() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"z", b"1"))
    log.put((b"a", None), (b"b", b"1"), timestamp=7000)
    log.put((b"c", b"1"))
    log.roll()
    log.clean(now=5000)
    assert [(o, v) for o, _, v in log.pairs()] == [(1, b"1"), (2, None), (3, b"1"), (4, b"1")]
    (_, header, _) = log.batches()
    assert header.delete_horizon_ms == 6000
    assert [r.timestamp for r in log.records()[1:3]] == [7000, 7001]
    log.clean_again(now=5999)
    assert (2, b"a", None) in log.pairs()
    assert log.batches()[1].delete_horizon_ms == 6000
    log.clean_again(now=6000)
    assert [o for o, _, _ in log.pairs()] == [1, 3, 4]
    assert log.records()[1].timestamp == 7001


def test_tombstone_first_seen_gets_a_horizon_however_old_it_is() -> None:
    log = compacted()
    log.put((b"a", None), timestamp=1)
    log.put((b"b", b"1"))
    log.roll()
    log.clean(now=10**9)
    assert [o for o, _, _ in log.pairs()] == [0, 1]


def test_superseded_tombstone_is_removed_at_once() -> None:
    log = compacted()
    log.put((b"a", None))
    log.put((b"a", b"1"))
    log.roll()
    log.clean(now=5000)
    assert log.pairs() == [(1, b"a", b"1")]


@pytest.mark.parametrize("codec", ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])
def test_setting_the_horizon_keeps_every_timestamp(codec: str) -> None:
    log = compacted()
    pairs = [(b"k%d" % at, None if at % 2 else b"v") for at in range(6)]
    log.put(*pairs, timestamp=10**12, compression=only(codec))
    log.roll()
    before = log.records()
    log.clean(now=5000)
    assert log.records() == before
    assert log.batches()[0].has_delete_horizon


# -- transactions --------------------------------------------------------------


def test_aborted_records_are_removed_and_supersede_nothing() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.put((b"a", b"2"), pid=1, txn=True)
    log.end(1, commit=False)
    log.put((b"b", b"1"))
    log.roll()
    log.clean()
    assert log.pairs() == [(0, b"a", b"1"), (3, b"b", b"1")]


def test_committed_records_supersede_others() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.put((b"a", b"2"), pid=1, txn=True)
    log.end(1, commit=True)
    log.put((b"b", b"1"))
    log.roll()
    log.clean()
    assert log.pairs() == [(1, b"a", b"2"), (3, b"b", b"1")]


def test_markers_are_never_deduplicated_by_their_key() -> None:
    log = compacted()
    for number in range(3):
        log.put((b"k%d" % number, b"v"), pid=1, txn=True)
        log.end(1, commit=True)
    log.put((b"z", b"1"))
    log.roll()
    log.clean()
    assert [h.base_offset for h in log.batches() if h.is_control] == [1, 3, 5]


def test_record_whose_key_looks_like_a_marker_supersedes_no_marker() -> None:
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.end(1, commit=True)
    log.put((b"\0\0\0\0", b"1"), (b"\0\0\0\1", b"1"))
    log.roll()
    log.clean()
    assert [(h.base_offset, h.records_count) for h in log.batches() if h.is_control] == [(1, 1)]


def test_marker_is_removed_only_after_its_data_and_its_horizon() -> None:
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.end(1, commit=True)
    log.put((b"a", b"2"), pid=2, txn=True)
    log.end(2, commit=True)
    log.put((b"x", b"1"), pid=1)
    log.put((b"z", b"1"))
    log.roll()

    def markers() -> list[int]:
        return [h.base_offset for h in log.batches() if h.is_control]

    log.clean(now=5000)
    assert markers() == [1, 3]
    assert [h.has_delete_horizon for h in log.batches() if h.is_control] == [False, False]
    log.clean_again(now=6000)
    assert markers() == [1, 3]
    assert [h.delete_horizon_ms for h in log.batches() if h.is_control] == [7000, None]
    log.clean_again(now=6999)
    assert markers() == [1, 3]
    log.clean_again(now=7000)
    assert markers() == [3]


def test_transaction_index_keeps_aborted_transactions_with_data_left() -> None:
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.roll()
    log.end(1, commit=False)
    log.put((b"b", b"1"), pid=1)
    log.put((b"z", b"1"))
    log.roll()
    log.clean(now=5000)
    assert [t.first_offset for t in log.log.collect_aborted(Offset(0), Offset(9))] == [0]
    log.clean_again(now=6000)
    assert log.log.collect_aborted(Offset(0), Offset(9)) == []
    assert [(r.offset, r.key) for r in log.read_committed()] == [(2, b"b"), (3, b"z")]


def test_later_transaction_of_the_same_producer_is_not_taken_for_aborted() -> None:
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.end(1, commit=False)
    log.put((b"a", b"2"), pid=1, txn=True)
    log.end(1, commit=True)
    log.put((b"z", b"1"))
    log.roll()
    for now in (5000, 6000, 7000, 8000):
        log.clean_again(now=now)
        assert log.committed() == {b"a": b"2", b"z": b"1"}


# -- producers -----------------------------------------------------------------


def test_last_batch_of_a_producer_outlives_its_records() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"), pid=1)
    log.put((b"a", b"2"), (b"b", b"2"), pid=2)
    log.put((b"z", b"1"))
    log.roll()
    log.clean()
    bare = log.batches()[0]
    assert (bare.records_count, bare.producer_id, bare.last_sequence) == (0, 1, 1)
    assert (bare.base_offset, bare.last_offset) == (0, 1)
    log.reopen()
    assert log.log.producers.last_sequence(1) == 1
    log.put((b"c", b"1"), pid=1)
    log.sequences[1] = 7
    with pytest.raises(OutOfOrderSequence):
        log.put((b"c", b"2"), pid=1)


def test_batch_of_an_unknown_producer_is_removed_with_its_records() -> None:
    log = compacted(producer_id_expiration_ms=10)
    log.put((b"a", b"1"), pid=1)
    log.put((b"a", b"2"))
    log.put((b"z", b"1"))
    log.roll()
    log.log.producers.expire(Millis(log.clock.wall + 10))
    log.clean()
    assert [h.base_offset for h in log.batches()] == [1, 2]


def test_last_marker_of_a_producer_keeps_its_epoch_fenced() -> None:
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.end(1, commit=True, epoch=1)
    log.put((b"a", b"2"))
    log.put((b"z", b"1"))
    log.roll()
    for now in (5000, 6000, 7000, 8000):
        log.clean_again(now=now)
    assert [(h.base_offset, h.records_count) for h in log.batches()] == [(1, 0), (2, 1), (3, 1)]
    log.reopen()
    with pytest.raises(InvalidProducerEpoch):
        log.put((b"b", b"1"), pid=1, epoch=0)


def test_follower_of_a_compacted_log_has_the_same_bytes_and_producers() -> None:
    """Gaps, bare headers and emptied markers included."""
    log = compacted()
    log.put((b"a", b"1"), pid=1, txn=True)
    log.end(1, commit=True, epoch=1)
    log.put((b"a", b"2"), (b"b", b"1"), pid=2)
    log.put((b"b", b"2"))
    log.put((b"a", b"3"))
    log.roll()
    for now in (5000, 6000, 7000, 8000):
        log.clean_again(now=now)
    assert [h.records_count for h in log.batches()] == [0, 0, 1, 1]
    follower = compacted()
    segment = log.log.segments[0]
    follower.log.append_at(segment.file.pread(segment.size, 0), now=log.clock.now())
    follower.replicate()
    assert follower.pairs() == log.pairs()
    assert follower.log.log_end_offset == log.log.log_end_offset

    def known(of: CompactedLog) -> list[tuple[int, int, int]]:
        entries = of.log.producers.entries()
        return [(e.producer_id, e.producer_epoch, e.last_sequence) for e in entries]

    log.reopen()
    assert known(follower) == known(log)


# -- failures ------------------------------------------------------------------


def test_damaged_batch_stops_the_cleaning_and_is_not_given_a_new_crc() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"a", b"2"))
    log.roll()
    log.disk.rot("/data/t-0/00000000000000000000.log", 70)
    with pytest.raises(CorruptBatch):
        log.clean()
    assert not [name for name in names(log) if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("byte", range(8))
def test_damaged_offset_stops_the_cleaning_although_no_crc_covers_it(byte: int) -> None:
    log = compacted()
    log.put((b"a", b"1"))
    second = log.log.segments[0].size
    log.put((b"a", b"2"))
    log.roll()
    log.disk.rot("/data/t-0/00000000000000000000.log", second + byte)
    with pytest.raises(CorruptBatch):
        log.clean()


def test_damage_in_the_clean_part_stops_the_cleaning_too() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"b", b"1"))
    log.roll()
    log.clean()
    log.put((b"a", b"2"))
    log.roll()
    log.disk.rot("/data/t-0/00000000000000000000.log", 70)
    with pytest.raises(CorruptBatch):
        log.clean()
    assert not [name for name in names(log) if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("kind", ["write", "sync", "create"])
def test_failing_disk_leaves_the_log_as_it_was(kind: str) -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"a", b"2"))
    log.roll()
    before = log.pairs()
    log.disk.fail(kind, path_contains=".cleaned")
    with pytest.raises(StorageFailed):
        log.clean()
    log.disk.heal()
    log.reopen()
    assert log.pairs() == before


def test_round_may_be_cancelled_at_any_step() -> None:
    log = compacted()
    for at in range(4):
        log.put((b"a", b"%d" % at))
        log.roll()
    before = log.pairs()
    steps = step_by_step(log).run()
    next(steps)
    steps.close()
    assert log.pairs() == before
    assert not [name for name in names(log) if "cleaned" in name]


def test_step_over_small_batches_ends_after_a_number_of_them() -> None:
    """Their bytes are few, but each costs as much as a larger one: the event loop waits.

    Plain batches are cleaned in runs, which cost by their bytes: see `test_batch_run.py`.
    """
    log = compacted()
    for at in range(4 * STEP_BATCHES):
        log.put((b"k%d" % at, b"v"), compression=only("LZ4"))
    log.roll()
    passes = 2  # to map the keys, and to rewrite the segment
    assert len(list(step_by_step(log).run())) >= passes * 4


def test_files_of_a_cleaned_segment_may_be_synced_before_the_step_that_needs_it() -> None:
    log = compacted()
    log.put((b"a", b"1"), (b"a", b"2"))
    log.roll()
    cleaning, offered = step_by_step(log), set[str]()
    for _ in cleaning.run():
        offered |= {file.path.rpartition("/")[2] for file in cleaning.unsynced}
        assert not offered or any(".cleaned" in name for name in names(log))
    kinds = {name.split(".")[1] for name in offered}
    assert kinds == {"log", "index", "timeindex", "txnindex"}
    assert cleaning.unsynced == ()


def test_truncation_meanwhile_stops_the_round() -> None:
    log = compacted()
    for at in range(4):
        log.put((b"a", b"%d" % at))
    log.roll()
    steps = step_by_step(log).run()
    next(steps)
    log.log.truncate_to(Offset(2))
    with pytest.raises(CleaningAborted):
        list(steps)
    assert [o for o, _, _ in log.pairs()] == [0, 1]


def test_retention_meanwhile_stops_the_round() -> None:
    log = compacted()
    for at in range(3):
        log.put((b"k%d" % at, b"1"))
        log.roll()
    steps = step_by_step(log).run()
    next(steps)
    log.log.delete_segments([Offset(0)])
    with pytest.raises(CleaningAborted):
        list(steps)
    assert [o for o, _, _ in log.pairs()] == [1, 2]


def test_closing_the_log_meanwhile_stops_the_round() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.roll()
    steps = step_by_step(log).run()
    next(steps)
    log.log.close()
    with pytest.raises(CleaningAborted):
        list(steps)


def test_appends_during_a_round_survive() -> None:
    log = compacted()
    log.put((b"a", b"1"))
    log.put((b"a", b"2"))
    log.roll()
    for _ in step_by_step(log).run():
        log.put((b"a", b"new"))
    assert log.pairs()[0] == (1, b"a", b"2")
    assert log.pairs()[1:]
    assert all(value == b"new" for _, _, value in log.pairs()[1:])
