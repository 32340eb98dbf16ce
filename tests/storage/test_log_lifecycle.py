"""Rolling, truncating, the log start, flush plans, and a failing disk."""

import errno
import os
from pathlib import Path

import pytest
from log_fixtures import (
    DIRECTORY,
    EPOCH,
    NOW,
    SMALL,
    HandClock,
    append,
    append_in_txn,
    batch_of,
    contents,
    end_txn,
    fill,
    names,
    open_log,
    reopen,
    replicate,
    segment_bases,
    values,
)

from ottla.protocol.faults import OffsetOutOfRange, StorageFailed
from ottla.protocol.records.writer import Producer
from ottla.runtime.disk import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimDisk
from simulation.platter import Keep

HOUR = 3_600_000


class Always:
    """A Random that returns the largest number allowed."""

    def below(self, limit: int) -> int:
        return limit - 1


# -- open files -------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [0, 30])
@pytest.mark.parametrize("is_clean", [True, False])
def test_opened_log_keeps_no_file_open_until_it_is_used(
    tmp_path: Path, batches: int, is_clean: bool
) -> None:
    directory = f"{tmp_path}/orders-0"
    os.mkdir(directory)
    log = open_log(RealDisk(), directory=directory)
    written = fill(log, batches)
    log.flush()
    log.close()
    before = len(os.listdir("/proc/self/fd"))
    checkpoint = LogCheckpoint(recovery_point=log.log_end_offset, is_clean=is_clean)
    log = open_log(RealDisk(), directory=directory, checkpoint=checkpoint)
    assert len(os.listdir("/proc/self/fd")) == before
    assert values(log) == written
    append(log, b"next")


# -- roll -------------------------------------------------------------------------------------


def test_segment_is_rolled_when_the_next_batch_would_not_fit() -> None:
    log = open_log(SimDisk())
    fill(log, 30)
    assert len(log.segments) > 5
    assert all(0 < segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert log.segments[0].size + log.segments[1].size // 4 > SMALL.segment_bytes - 90


def test_segment_is_rolled_by_the_age_of_its_records() -> None:
    log = open_log(SimDisk(), LogConfig(segment_ms=HOUR))
    for at in (0, HOUR, HOUR + 1):
        batch = batch_of(b"x", timestamp=NOW + at)
        log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW)
    assert segment_bases(log) == [0, 2]


def test_without_timestamps_a_segment_is_rolled_by_the_clock() -> None:
    clock = HandClock()
    log = open_log(SimDisk(), LogConfig(segment_ms=HOUR), clock=clock)
    append(log, b"a", timestamp=-1)
    clock.pass_ms(HOUR + 1)
    batch_time = clock.now()
    log.append_as_leader(batch_of(b"b", timestamp=-1), leader_epoch=EPOCH, now=batch_time)
    assert segment_bases(log) == [0, 1]


def test_segment_jitter_rolls_earlier() -> None:
    config = LogConfig(segment_ms=HOUR, segment_jitter_ms=1000)
    log = Log.open(SimDisk(), DIRECTORY, config, clock=HandClock(), random=Always())
    append(log, b"a", timestamp=NOW)
    append(log, b"b", timestamp=NOW + HOUR - 999)
    append(log, b"c", timestamp=NOW + HOUR - 998)
    assert segment_bases(log) == [0, 2]


def test_compaction_in_time_rolls_earlier() -> None:
    config = LogConfig(segment_ms=HOUR, is_compacted=True, max_compaction_lag_ms=1000)
    log = open_log(SimDisk(), config)
    append(log, b"a", timestamp=NOW)
    append(log, b"b", timestamp=NOW + 1001)
    assert segment_bases(log) == [0, 1]


def test_full_index_rolls_the_segment() -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=8 * 4)
    log = open_log(SimDisk(), config)
    for at in range(40):
        append(log, b"x", timestamp=NOW + at)
    assert len(log.segments) > 5
    assert all(len(segment.offset_index) <= 4 for segment in log.segments)
    assert [at for at, _ in contents(log)] == list(range(40))


def test_offsets_too_far_from_the_base_go_to_a_new_segment() -> None:
    log = open_log(SimDisk(), LogConfig())
    replicate(log, 0, b"a")
    replicate(log, 2**31 - 1, b"b")
    assert segment_bases(log) == [0]
    replicate(log, 2**31 + 5, b"c")
    assert segment_bases(log) == [0, 2**31]
    replicate(log, 2**33, b"d")
    assert segment_bases(log) == [0, 2**31, 2**33]
    assert [at for at, _ in contents(log)] == [0, 2**31 - 1, 2**31 + 5, 2**33]


def test_segment_begins_where_the_one_before_it_ends_even_before_a_gap() -> None:
    log = open_log(SimDisk())
    replicate(log, 0, b"x" * 200)
    replicate(log, 9, b"y" * 200)
    assert segment_bases(log) == [0, 1]


def test_roll_leaves_a_snapshot_of_the_producers_at_the_new_base() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, b"a", producer=Producer(4, 0, 0))
    log.roll()
    log.roll()
    assert segment_bases(log) == [0, 1]
    assert "00000000000000000001.snapshot" in names(disk)


def test_changed_settings_hold_from_the_next_append_on() -> None:
    log = open_log(SimDisk(), LogConfig())
    fill(log, 20)
    assert len(log.segments) == 1
    log.configure(SMALL)
    fill(log, 20)
    assert len(log.segments) > 4


# -- truncate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(0, 31))
def test_truncation_leaves_exactly_what_is_below(offset) -> None:
    disk = SimDisk()
    log = open_log(disk)
    everything = list(enumerate(fill(log, 30)))
    assert log.truncate_to(offset) == (offset < 30)
    assert log.log_end_offset == min(offset, 30)
    assert contents(log) == everything[:offset]
    more = append(log, b"more", epoch=EPOCH + 1)
    assert more.first_offset == min(offset, 30)
    assert contents(log) == [*everything[:offset], (more.first_offset, b"more")]
    log.close()
    assert contents(reopen(disk, is_clean=True)) == [
        *everything[:offset],
        (more.first_offset, b"more"),
    ]


def test_truncation_inside_a_batch_removes_all_of_it() -> None:
    log = open_log(SimDisk())
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert values(log) == [b"a", b"b"]
    assert append(log, b"x").first_offset == 2


def test_truncation_removes_epochs_producers_and_aborted_transactions() -> None:
    log = open_log(SimDisk())
    append_in_txn(log, 5, 0, b"a")
    end_txn(log, 5, commit=False)
    append(log, b"b", producer=Producer(6, 0, 0), epoch=2)
    append(log, b"c", producer=Producer(6, 0, 1), epoch=3)
    log.truncate_to(3)
    assert [entry.epoch for entry in log.epochs.entries] == [EPOCH, 2]
    assert not append(log, b"c", producer=Producer(6, 0, 1), epoch=4).is_duplicate
    log.truncate_to(1)
    assert log.collect_aborted(0, 9) == []
    log.set_high_watermark(1)
    assert log.last_stable_offset == 0
    assert [entry.epoch for entry in log.epochs.entries] == [EPOCH]


def test_truncation_removes_later_snapshots() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig())
    for at in range(8):
        append(log, b"p", producer=Producer(6, 0, at))
    log.close()
    log = reopen(disk, LogConfig(), is_clean=True)
    log.truncate_to(4)
    fill(log, 4)
    log.close()
    log = reopen(disk, LogConfig(), is_clean=True)
    assert log.log_end_offset == 8
    assert log.producers.last_sequence(6) == 3


def test_truncation_lowers_recovery_point_and_high_watermark() -> None:
    log = open_log(SimDisk())
    fill(log, 20)
    log.set_high_watermark(20)
    log.flush()
    assert log.recovery_point == 20
    log.truncate_to(11)
    assert (log.recovery_point, log.high_watermark) == (11, 11)


def test_truncation_below_the_first_segment_restarts_the_log_there() -> None:
    log = open_log(SimDisk())
    fill(log, 30)
    log.set_high_watermark(30)
    log.delete_segments(segment_bases(log)[:3])
    first = segment_bases(log)[0]
    log.truncate_to(first - 1)
    assert (log.log_start_offset, log.log_end_offset) == (first - 1, first - 1)


def test_restarting_the_log_removes_everything() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 10)
    append(log, b"p", producer=Producer(4, 0, 0))
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert log.epochs.entries == ()
    assert 4 not in log.producers
    assert append(log, b"x").first_offset == 500
    assert contents(log) == [(500, b"x")]
    log.close()
    assert contents(reopen(disk, is_clean=True, log_start_offset=500)) == [(500, b"x")]


# -- the log start --------------------------------------------------------------------------------


def test_log_start_advances_without_deleting_anything() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 20)
    before = names(disk)
    log.set_high_watermark(20)
    assert log.advance_log_start(9)
    assert not log.advance_log_start(8)
    assert log.log_start_offset == 9
    assert [at for at, _ in contents(log)] == list(range(9, 20))
    assert names(disk) == before


def test_log_start_never_passes_the_high_watermark() -> None:
    log = open_log(SimDisk())
    fill(log, 20)
    log.set_high_watermark(10)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(11)
    with pytest.raises(OffsetOutOfRange):
        log.delete_segments(segment_bases(log)[:4])
    assert log.log_start_offset == 0
    assert len(contents(log)) == 20


def _delete_records(log: Log) -> None:
    log.advance_log_start(15)


def _expire_segments(log: Log) -> None:
    log.delete_segments([base for base in segment_bases(log) if base < 12])


@pytest.mark.parametrize("shorten", [_delete_records, _expire_segments])
def test_last_stable_offset_is_never_below_the_log_start(shorten) -> None:
    """As Kafka: an open transaction whose first records were deleted begins at the log start."""
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 5)
    append_in_txn(log, 7, 0, b"open")
    fill(log, 14)
    log.set_high_watermark(20)
    assert log.last_stable_offset == 5
    shorten(log)
    start = log.log_start_offset
    assert (start > 5, log.last_stable_offset) == (True, start)
    again = reopen(disk, log_start_offset=start)
    again.set_high_watermark(20)
    assert again.last_stable_offset == start
    end_txn(log, 7, commit=False)
    assert log.last_stable_offset == start
    log.set_high_watermark(21)
    assert log.last_stable_offset == 21


def test_files_of_deleted_segments_are_kept_for_readers() -> None:
    disk, clock = SimDisk(), HandClock()
    log = open_log(disk, clock=clock)
    fill(log, 20)
    log.set_high_watermark(20)
    part = log.read(0, 1 << 20, upto=20)
    bases = segment_bases(log)
    assert log.delete_segments(bases[:2]) == 2
    assert segment_bases(log) == bases[2:]
    assert log.log_start_offset == bases[2]
    assert len(part.file.pread(part.length, part.position)) == part.length
    waiting = [name for name in names(disk) if name.endswith(".deleted")]
    assert waiting == [f"{base:020d}.log.deleted" for base in bases[:2]]
    clock.pass_ms(SMALL.file_delete_delay_ms - 1)
    assert log.purge_deleted() == 0
    clock.pass_ms(1)
    assert log.purge_deleted() == 2
    assert not any(name.startswith(f"{base:020d}") for base in bases[:2] for name in names(disk))


def test_deleting_the_active_segment_begins_a_new_one_first() -> None:
    log = open_log(SimDisk())
    fill(log, 3)
    log.set_high_watermark(3)
    log.delete_segments(segment_bases(log))
    assert segment_bases(log) == [3]
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert append(log, b"x").first_offset == 3


# -- durability -------------------------------------------------------------------------------


def carry_out(plan) -> None:
    for file in plan.files:
        file.sync()


def test_what_a_flush_plan_covers_survives_power_loss_and_nothing_else_need() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 20)
    plan = log.flush_plan()
    fill(log, 5)
    carry_out(plan)
    log.flushed(plan)
    assert log.recovery_point == 20
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert values(reopen(disk, recovery_point=20)) == expected


def test_second_plan_has_only_what_is_new() -> None:
    log = open_log(SimDisk())
    fill(log, 20)
    plan = log.flush_plan()
    carry_out(plan)
    log.flushed(plan)
    assert [file.path for file in log.flush_plan().files] == [log.segments[-1].path]


def test_flush_plan_made_before_a_truncation_is_invalid() -> None:
    log = open_log(SimDisk())
    fill(log, 20)
    plan = log.flush_plan()
    log.truncate_to(10)
    fill(log, 10)
    carry_out(plan)
    log.flushed(plan)
    assert log.recovery_point <= 10


def test_segment_rolled_while_a_plan_is_carried_out_is_in_the_next() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 4)
    plan = log.flush_plan()
    expected = [b"value-%06d" % at for at in range(4)] + fill(log, 20, start=4)
    carry_out(plan)
    log.flushed(plan)
    log.flush()
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert values(reopen(disk, recovery_point=log.recovery_point)) == expected


def test_segment_deleted_before_it_was_synced_is_left_alone() -> None:
    disk, clock = SimDisk(), HandClock()
    log = open_log(disk, clock=clock)
    fill(log, 20)
    log.set_high_watermark(20)
    log.delete_segments(segment_bases(log)[:2])
    clock.pass_ms(SMALL.file_delete_delay_ms)
    assert log.purge_deleted() == 2
    log.flush()
    assert log.recovery_point == 20


def test_clean_close_is_durable_whole_and_needs_no_reading() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 30)
    append(log, b"p", producer=Producer(4, 0, 0))
    log.close()
    disk.crash(Keep.NOTHING)
    disk.restart()
    log = reopen(disk, is_clean=True)
    assert log.report.segments_checked == []
    assert values(log) == [*expected, b"p"]
    assert append(log, b"p", producer=Producer(4, 0, 0)).is_duplicate


def test_close_of_an_unchanged_log_writes_and_syncs_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 30)
    log.close()
    log = reopen(disk, is_clean=True, recovery_point=30)
    before = disk.operations
    log.close()
    assert disk.operations == before
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert values(reopen(disk, is_clean=True, recovery_point=30)) == expected


@pytest.mark.parametrize("change", ["append", "flush", "truncate", "roll"])
def test_close_of_a_log_that_changed_since_it_was_opened_is_durable(change: str) -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 30)
    log.close()
    log = reopen(disk, is_clean=True, recovery_point=30)
    if change == "truncate":
        log.truncate_to(29)
        append(log, b"other")
        expected[29:] = [b"other"]
    elif change == "roll":
        log.roll()
    else:
        append(log, b"p", producer=Producer(4, 0, 0))
        expected.append(b"p")
    if change == "flush":
        log.flush()
    log.close()
    disk.crash(Keep.NOTHING)
    disk.restart()
    log = reopen(disk, is_clean=True, recovery_point=len(expected))
    assert log.report.segments_checked == []
    assert values(log) == expected
    if change in ("append", "flush"):
        assert append(log, b"p", producer=Producer(4, 0, 0)).is_duplicate


def test_closed_log_rejects_appends() -> None:
    log = open_log(SimDisk())
    log.close()
    with pytest.raises(StorageFailed):
        append(log, b"x")


def test_preallocated_space_is_trimmed_by_roll_and_close() -> None:
    disk = SimDisk()
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, preallocate=True)
    log = open_log(disk, config)
    expected = fill(log, 11)
    sizes = [(segment.path, segment.size) for segment in log.segments]
    assert disk.size(sizes[-1][0]) == 400
    assert all(disk.size(path) == size for path, size in sizes[:-1])
    log.close()
    assert [disk.size(path) for path, _ in sizes] == [size for _, size in sizes]
    assert values(reopen(disk, config, is_clean=True)) == expected


# -- disk failures ------------------------------------------------------------------


def check_failed(log: Log, disk: SimDisk, expected: list[bytes]) -> None:
    """Check that writes fail, reads continue, and a restart finds the records."""
    assert log.is_failed
    for attempt in (
        lambda: append(log, b"y"),
        lambda: replicate(log, log.log_end_offset, b"y"),
        log.flush,
        log.flush_plan,
        log.roll,
        lambda: log.truncate_to(0),
    ):
        with pytest.raises(StorageFailed) as raised:
            attempt()
        assert raised.value.code.name == "KAFKA_STORAGE_ERROR"
    assert values(log) == expected
    log.close()
    disk.heal()
    disk.kill()
    disk.restart()
    assert values(reopen(disk)) == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_write_that_fails_halfway_leaves_no_partial_batch(seed, error) -> None:
    disk = SimDisk(seed)
    log = open_log(disk)
    expected = fill(log, 6)
    disk.fail("write", path_contains=".log", error=error)
    with pytest.raises(StorageFailed) as raised:
        append(log, b"x")
    assert raised.value.directory == DIRECTORY
    assert isinstance(raised.value.__cause__, OSError)
    active = log.segments[-1]
    assert disk.size(active.path) == active.size
    assert log.log_end_offset == 6
    check_failed(log, disk, expected)


def test_full_disk_after_a_short_write() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 6)
    disk.limit(sum(disk.size(f"{DIRECTORY}/{name}") for name in names(disk)) + 20)
    with pytest.raises(StorageFailed):
        append(log, b"x" * 50)
    check_failed(log, disk, expected)


@pytest.mark.parametrize("kind", ["create", "open", "truncate"])
@pytest.mark.parametrize(
    "error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE]
)
@pytest.mark.parametrize("path", [".log", ".index", ".timeindex", ".snapshot"])
def test_roll_that_fails_corrupts_nothing(kind, error, path) -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 3)
    disk.fail(kind, path_contains=path, error=error)
    try:
        log.roll()
    except StorageFailed:
        check_failed(log, disk, expected)
    else:
        pytest.fail("the fault did not strike")


def test_failed_fsync_is_final() -> None:
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 6)
    disk.fail("sync", error=errno.EIO)
    with pytest.raises(StorageFailed):
        log.flush()
    assert log.recovery_point == 0
    operations = disk.operations
    with pytest.raises(StorageFailed):
        log.flush()
    assert disk.operations == operations, "an fsync was tried again"
    assert values(log) == expected


def test_failed_read_raises_storage_failed() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 6)
    disk.fail("read", path_contains=".log")
    with pytest.raises(StorageFailed):
        log.read(3, 100, upto=6)
    assert log.is_failed


def test_failed_open_raises_storage_failed() -> None:
    disk = SimDisk()
    open_log(disk).close()
    disk.fail("list", error=errno.EIO)
    with pytest.raises(StorageFailed):
        reopen(disk)


def test_aborted_transaction_that_cannot_be_indexed_fails_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append_in_txn(log, 5, 0, b"a")
    disk.fail("create", path_contains=".txnindex", error=errno.ENOSPC)
    with pytest.raises(StorageFailed):
        end_txn(log, 5, commit=False)
    disk.heal()
    disk.kill()
    disk.restart()
    log = open_log(disk, checkpoint=LogCheckpoint())
    log.set_high_watermark(2)
    assert log.collect_aborted(0, 2) == [(5, 0, 1, 2)]
