"""Opening a log after a failure: torn tails, lost indexes, temporary files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_fixtures import (
    DIRECTORY,
    EPOCH,
    NOW,
    SMALL,
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

from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Offset
from ottla.runtime.ports import OpenMode
from ottla.storage.log.files import Kind, LogFiles, State
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.segment import Segment
from simulation.disk import SimCrash, SimDisk
from simulation.platter import Keep

ONE_SEGMENT = LogConfig(index_interval_bytes=100)


def path_of(offset: int, kind: Kind, state: State = State.LIVE) -> str:
    return LogFiles(SimDisk(), DIRECTORY).path(offset, kind, state)


def put(disk: SimDisk, path: str, data: bytes, position: int | None = None) -> None:
    """Overwrite a file without the log; all of it unless a position is given."""
    file = disk.open(path, OpenMode.CREATE)
    if position is None:
        file.truncate(0)
    file.pwrite(data, position or 0)
    file.close()


def stopped(count: int = 10, config: LogConfig = ONE_SEGMENT) -> tuple[SimDisk, list[bytes]]:
    disk = SimDisk()
    log = open_log(disk, config)
    expected = fill(log, count)
    log.close()
    return disk, expected


def goes_on(log) -> None:
    """Check that the log accepts and returns records."""
    at = log.log_end_offset
    assert append(log, b"goes on", epoch=9).first_offset == at
    assert contents(log)[-1] == (at, b"goes on")
    log.flush()


# -- the tail ---------------------------------------------------------------------------

SIZE = len(batch_of(b"value-000000"))
TAILS = {
    "one byte": b"\x01",
    "half a header": bytes(batch_of(b"x"))[:30],
    "header alone": bytes(batch_of(b"x"))[:61],
    "half a batch": bytes(batch_of(b"x", base_offset=10))[:-1],
    "zeros": bytes(1000),
    "few zeros": bytes(5),
    "wrong crc": bytes(batch_of(b"x", base_offset=10))[:-1] + b"\xff",
    "offset goes back": bytes(batch_of(b"x", base_offset=3)),
    "old magic": bytes(16) + b"\x01" + bytes(60),
    "huge length": bytes(batch_of(b"x", base_offset=10)).replace(b"\0\0\0", b"\x7f\xff\xff", 3),
    "negative length": bytes(8) + b"\xff\xff\xff\xff" + bytes(4) + b"\x02" + bytes(60),
    "negative delta": bytes(batch_of(b"x", base_offset=10, last_offset_delta=-4)),
    "text": b"this is not a record batch, and it is long enough to be taken for one ......",
}


@pytest.mark.parametrize("tail", TAILS)
def test_invalid_tail_is_cut_off(tail) -> None:
    disk, expected = stopped()
    path = path_of(0, Kind.LOG)
    size = disk.size(path)
    put(disk, path, TAILS[tail], size)
    log = reopen(disk, ONE_SEGMENT)
    assert values(log) == expected
    assert disk.size(path) == size
    (cut,) = log.report.cuts
    assert (cut.base_offset, cut.position, cut.length) == (0, size, len(TAILS[tail]))
    assert cut.reason
    goes_on(log)


@pytest.mark.parametrize("tail", ["zeros", "half a batch", "one byte"])
def test_invalid_tail_is_cut_off_even_after_a_clean_stop(tail) -> None:
    disk, expected = stopped()
    put(disk, path_of(0, Kind.LOG), TAILS[tail], disk.size(path_of(0, Kind.LOG)))
    log = reopen(disk, ONE_SEGMENT, is_clean=True)
    assert values(log) == expected
    goes_on(log)


@pytest.mark.parametrize("cut", range(0, 3 * SIZE + 1, 5))
def test_log_cut_anywhere_ends_with_its_last_complete_batch(cut) -> None:
    disk, expected = stopped(3)
    path = path_of(0, Kind.LOG)
    put(disk, path, disk.read(path)[:cut])
    log = reopen(disk, ONE_SEGMENT)
    assert values(log) == expected[: cut // SIZE]
    goes_on(log)


@given(st.integers(0, 10 * SIZE - 1), st.integers(0, 2**16))
def test_flipped_bit_cuts_the_log_before_it(position, seed) -> None:
    disk = SimDisk(seed)
    log = open_log(disk, ONE_SEGMENT)
    expected = fill(log, 10)
    log.close()
    disk.rot(path_of(0, Kind.LOG), position)
    log = reopen(disk, ONE_SEGMENT)
    intact = position // SIZE
    # No CRC covers offset and epoch: a flip there may pass, or end the log.
    assert values(log)[:intact] == expected[:intact]
    if position % SIZE >= 16 or position % SIZE in range(8, 12):
        assert values(log) == expected[:intact]
    goes_on(log)


def test_segments_after_a_corrupt_one_are_dropped_and_reported() -> None:
    disk, expected = stopped(30, SMALL)
    log = reopen(disk, is_clean=True)
    bases = segment_bases(log)
    log.close()
    disk.rot(path_of(bases[2], Kind.LOG), 70)
    log = reopen(disk)
    assert log.log_end_offset == bases[2]
    assert values(log) == expected[: bases[2]]
    assert [cut.base_offset for cut in log.report.cuts] == [bases[2]]
    assert sorted(log.report.segments_dropped) == bases[3:]
    assert log.report.is_loss
    goes_on(log)


def test_below_the_recovery_point_nothing_is_read_again() -> None:
    disk, _ = stopped(30, SMALL)
    log = reopen(disk, is_clean=True)
    bases = segment_bases(log)
    log.close()
    log = reopen(disk, recovery_point=bases[4] + 1)
    assert log.report.segments_checked == bases[4:]


def test_end_of_a_segment_lost_with_the_power_ends_the_log_there() -> None:
    """The file ends at a batch, so only the gap to the next segment shows the loss."""
    disk, expected = stopped(30, SMALL)
    log = reopen(disk, is_clean=True)
    bases = segment_bases(log)
    log.close()
    path = path_of(bases[1], Kind.LOG)
    put(disk, path, disk.read(path)[:-SIZE])
    log = reopen(disk)
    assert values(log) == expected[: bases[2] - 1]
    goes_on(log)


def test_gap_between_segments_of_a_compacted_log_is_not_a_loss() -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, is_compacted=True)
    disk = SimDisk()
    log = open_log(disk, config)
    replicate(log, 0, b"a")
    log.roll()
    replicate(log, 50, b"b")
    log.roll()
    replicate(log, 90, b"c")
    log.close()
    log = reopen(disk, config)
    assert contents(log) == [(0, b"a"), (50, b"b"), (90, b"c")]
    assert not log.report.is_loss


def test_gaps_left_by_an_earlier_compaction_are_not_a_loss() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    fill(log, 20)
    bases = segment_bases(log)
    log.replace_segments([cleaned(disk, 0, [1]), cleaned(disk, bases[2], [bases[2]])], bases[:4])
    expected = contents(log)
    log.close()
    log = reopen(disk, SMALL)
    assert contents(log) == expected
    assert not log.report.is_loss


def test_preallocated_zeros_after_a_crash_are_not_records() -> None:
    config = LogConfig(segment_bytes=4096, index_interval_bytes=100, preallocate=True)
    disk = SimDisk()
    log = open_log(disk, config)
    expected = fill(log, 5)
    disk.kill()
    disk.restart()
    log = reopen(disk, config)
    assert values(log) == expected
    goes_on(log)


def test_bytes_that_recovery_cut_off_do_not_come_back() -> None:
    disk, expected = stopped()
    put(disk, path_of(0, Kind.LOG), bytes(batch_of(b"ghost", base_offset=11)), 10 * SIZE + 7)
    disk.open(path_of(0, Kind.LOG), OpenMode.READ_WRITE).sync()
    reopen(disk, ONE_SEGMENT)
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert disk.size(path_of(0, Kind.LOG)) == 10 * SIZE
    assert values(reopen(disk, ONE_SEGMENT)) == expected


def test_recovered_segments_are_synced_by_the_next_flush() -> None:
    """They were only in the page cache; a later power loss must not lose them."""
    disk = SimDisk()
    log = open_log(disk)
    expected = fill(log, 30)
    disk.kill()
    disk.restart()
    log = reopen(disk)
    log.flush()
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert values(reopen(disk, recovery_point=log.recovery_point)) == expected


# -- derived files ----------------------------------------------------------------

GARBAGE = {
    "missing": None,
    "empty": b"",
    "zeros": bytes(24),
    "ones": b"\xff" * 24,
    "odd": b"\x00\x00\x00\x07\x00",
    "text": b"garbage garbage garbage\n",
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("kind", [Kind.OFFSET_INDEX, Kind.TIME_INDEX])
def test_log_with_corrupt_indexes_reads_correctly(kind, garbage, is_clean) -> None:
    disk, expected = stopped(30, SMALL)
    for name in names(disk):
        if name.endswith(kind.value):
            path = f"{DIRECTORY}/{name}"
            disk.remove(path) if GARBAGE[garbage] is None else put(disk, path, GARBAGE[garbage])
    log = reopen(disk, is_clean=is_clean)
    assert contents(log) == list(enumerate(expected))
    assert log.offset_for_timestamp(NOW).offset == 0
    assert log.offset_for_timestamp(NOW + 1) is None
    assert log.max_timestamp().timestamp == NOW
    goes_on(log)


def producers_and_aborts(disk: SimDisk):
    log = open_log(disk)
    for at in range(8):
        append_in_txn(log, 5, at, b"a%d" % at)
        end_txn(log, 5, commit=at % 2 == 0)
        append(log, b"b%d" % at, producer=Producer(6, 0, at))
    aborted = log.collect_aborted(0, log.log_end_offset)
    assert len(aborted) == 4
    assert len(log.segments) > 4
    log.close()
    return aborted


@pytest.mark.parametrize("garbage", [each for each in GARBAGE if each not in ("missing", "empty")])
def test_corrupt_transaction_index_is_rebuilt(garbage) -> None:
    disk = SimDisk()
    aborted = producers_and_aborts(disk)
    for name in names(disk):
        if name.endswith(".txnindex"):
            put(disk, f"{DIRECTORY}/{name}", GARBAGE[garbage])
    log = reopen(disk, is_clean=True)
    assert log.collect_aborted(0, log.log_end_offset) == aborted


@pytest.mark.parametrize("garbage", GARBAGE)
def test_transaction_index_is_rebuilt_from_the_log_after_a_crash(garbage) -> None:
    disk = SimDisk()
    aborted = producers_and_aborts(disk)
    for name in names(disk):
        if name.endswith(".txnindex"):
            path = f"{DIRECTORY}/{name}"
            disk.remove(path) if GARBAGE[garbage] is None else put(disk, path, GARBAGE[garbage])
    log = reopen(disk)
    assert log.collect_aborted(0, log.log_end_offset) == aborted


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("only_newest", [True, False])
def test_bad_snapshot_is_replaced_by_replaying_the_log(garbage, is_clean, only_newest) -> None:
    disk = SimDisk()
    producers_and_aborts(disk)
    taken = [name for name in names(disk) if name.endswith(".snapshot")]
    for name in taken[-1:] if only_newest else taken:
        path = f"{DIRECTORY}/{name}"
        disk.remove(path) if GARBAGE[garbage] is None else put(disk, path, GARBAGE[garbage])
    log = reopen(disk, is_clean=is_clean)
    assert append(log, b"b7", producer=Producer(6, 0, 7)).is_duplicate
    assert not append(log, b"b8", producer=Producer(6, 0, 8)).is_duplicate
    append_in_txn(log, 5, 8, b"a8")
    assert log.producers.first_undecided_offset == log.log_end_offset - 1


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_corrupt_leader_epochs_are_rebuilt_from_the_log(garbage, is_clean) -> None:
    disk = SimDisk()
    log = open_log(disk)
    for at in range(20):
        append(log, b"x", epoch=3 + at // 6)
    expected = log.epochs.entries
    assert len(expected) == 4
    log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    disk.remove(path) if GARBAGE[garbage] is None else put(disk, path, GARBAGE[garbage])
    log = reopen(disk, is_clean=is_clean)
    assert log.epochs.entries == expected
    log.close()
    assert reopen(disk, is_clean=True).epochs.entries == expected


def test_epochs_beyond_the_log_end_are_dropped() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, b"a", epoch=2)
    log.start_epoch(5)
    assert log.epochs.latest_epoch == 5
    log.close()
    assert reopen(disk).epochs.entries == ((2, 0),)


def test_epoch_without_a_batch_gives_way_to_the_epoch_of_a_batch() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, b"a", epoch=2)
    log.close()
    put(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n2 0\n5 1\n")
    log = reopen(disk, is_clean=True)
    replicate(log, 1, b"b", epoch=3)  # the replica that led in epoch 5 wrote nothing
    put(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n2 0\n5 1\n")  # what is durable
    disk.kill()
    disk.restart()
    assert reopen(disk).epochs.entries == ((2, 0), (3, 1))


def test_epochs_found_in_batches_are_written() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, b"a", epoch=2)
    append(log, b"b", epoch=3)
    disk.kill()
    disk.restart()
    put(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n2 0\n")  # what is durable
    reopen(disk).close()
    assert reopen(disk, is_clean=True).epochs.entries == ((2, 0), (3, 1))


@pytest.mark.parametrize("seed", range(20))
def test_epochs_survive_a_power_failure_after_a_process_crash(seed: int) -> None:
    disk = SimDisk(seed)
    log = open_log(disk)
    append(log, b"a", epoch=2)
    log.flush()
    append(log, b"b", epoch=3)
    disk.kill()
    disk.restart()
    log = reopen(disk)
    for _ in range(10):  # the first batch of epoch 3 is not in the last segment any more
        append(log, b"c", epoch=3)
    log.flush()
    disk.crash()
    disk.restart()
    log = reopen(disk, recovery_point=12)
    assert log.epochs.entries == ((2, 0), (3, 1))


def test_open_transaction_is_known_after_a_restart() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, b"x")
    append_in_txn(log, 5, 0, b"a")
    fill(log, 10)
    log.close()
    for is_clean in (True, False):
        log = reopen(disk, is_clean=is_clean)
        log.set_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 1
        log.close()


# -- temporary files -----------------------------------------------------------------------


def test_leftovers_are_removed_and_unknown_files_left_alone() -> None:
    disk, expected = stopped(10, SMALL)
    left = [
        "00000000000000000000.log.deleted",
        "00000000000000000099.log.cleaned",
        "00000000000000000099.index.cleaned",
        "00000000000000000077.index",
        "00000000000000000077.timeindex",
        "00000000000000000077.txnindex",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000500.snapshot",
    ]
    strangers = ["partition.metadata", "notes.txt", "00000000000000000001-0000000001.checkpoint"]
    for name in left + strangers:
        put(disk, f"{DIRECTORY}/{name}", b"x")
    log = reopen(disk, is_clean=True)
    assert values(log) == expected
    assert not set(left) & set(names(disk))
    assert set(strangers) <= set(names(disk))


def cleaned(disk: SimDisk, base: int, offsets: list[int]) -> Segment:
    """Return a segment like the cleaner's: fewer records with their offsets."""
    files = LogFiles(disk, DIRECTORY)
    segment = Segment.create(files, base, SMALL, now=NOW, state=State.CLEANED)
    for offset in offsets:
        batch = batch_of(b"kept-%d" % offset, base_offset=offset, leader_epoch=EPOCH)
        segment.write(batch)
        segment.note(offset, NOW, len(batch))
    segment.seal()
    for kind in (Kind.LOG, Kind.OFFSET_INDEX, Kind.TIME_INDEX):
        file = disk.open(files.path(base, kind, State.CLEANED), OpenMode.READ_WRITE)
        file.sync()
        file.close()
    return segment


COMPACTED = LogConfig(segment_bytes=400, index_interval_bytes=100, is_compacted=True)


def test_replaced_segments_are_read_at_once_and_after_a_restart() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    expected = list(enumerate(fill(log, 20)))
    bases = segment_bases(log)
    kept = [2, bases[2] + 1]
    log.replace_segments([cleaned(disk, 0, kept)], bases[:3])
    after = [(at, b"kept-%d" % at) for at in kept] + expected[bases[3] :]
    assert contents(log) == after
    assert segment_bases(log) == [0, *bases[3:]]
    log.close()
    assert contents(reopen(disk, COMPACTED, is_clean=True)) == after
    assert contents(reopen(disk, COMPACTED)) == after


def test_swap_interrupted_anywhere_is_all_or_nothing() -> None:
    def work(disk: SimDisk, log) -> None:
        bases = segment_bases(log)
        fresh = [cleaned(disk, 0, [1]), cleaned(disk, bases[2], [bases[2] + 1, bases[4] - 1])]
        log.replace_segments(fresh, bases[:4])

    def start(seed: int):
        disk = SimDisk(seed)
        log = open_log(disk, COMPACTED)
        fill(log, 20)
        log.flush()
        return disk, log

    disk, log = start(0)
    bases = segment_bases(log)
    old = contents(log)
    before = disk.operations
    work(disk, log)
    count = disk.operations - before
    new = contents(log)
    assert old != new
    seen = set()
    for step in range(1, count + 1):
        for seed in range(3):
            disk, log = start(seed)
            disk.crash_at(step)
            with pytest.raises(SimCrash):
                work(disk, log)
            disk.crash()
            disk.restart()
            log = reopen(disk, COMPACTED, recovery_point=20)
            assert contents(log) in (old, new), step
            seen.add(contents(log) == new)
            assert set(segment_bases(log)) <= set(bases)
            assert not [name for name in names(disk) if name.endswith((".cleaned", ".swap"))]
            goes_on(log)
            log.close()
            assert len(contents(reopen(disk, COMPACTED, is_clean=True))) in (3 + 5, 20 + 1)
    assert seen == {True, False}


# -- the log start ---------------------------------------------------------------------


def test_log_start_is_the_checkpointed_one_or_the_first_segment() -> None:
    disk, expected = stopped(20, SMALL)
    log = reopen(disk, is_clean=True, log_start_offset=9)
    assert log.log_start_offset == 9
    assert values(log) == expected[9:]
    log.set_high_watermark(20)
    bases = segment_bases(log)
    log.delete_segments(bases[: [b > 9 for b in bases].index(True)])
    first = segment_bases(log)[0]
    log.close()
    assert reopen(disk, is_clean=True).log_start_offset == first


def test_log_that_ends_before_its_start_restarts_there() -> None:
    disk, _ = stopped(5, SMALL)
    log = reopen(disk, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert contents(log) == []
    goes_on(log)


def test_log_in_an_empty_directory_begins_at_the_checkpointed_start() -> None:
    log = reopen(SimDisk(), log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset, segment_bases(log)) == (42, 42, [42])
    goes_on(log)


def test_log_in_an_empty_directory_begins_at_zero() -> None:
    log = reopen(SimDisk())
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_tiered_log_starts_where_its_epochs_do_if_the_checkpoint_is_older() -> None:
    """The start that retention had reached must not fall back to offsets without an epoch."""
    disk = SimDisk()
    config = LogConfig(segment_bytes=SMALL.segment_bytes, is_tiered=True)
    log = open_log(disk, config)
    fill(log, 10)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(Offset(5))
    assert log.epochs.entries[0].start_offset == 5
    log.close()
    assert reopen(disk, config).log_start_offset == 5


def test_segment_with_the_batches_of_a_later_one_ends_the_log_there() -> None:
    disk = SimDisk()
    log = open_log(disk)
    written = fill(log, 14)
    log.flush()
    first, second, third = log.segments[1:4]
    base = first.base_offset
    paths = [first.path, third.path]
    data = [disk.read(path) for path in paths]
    disk.damage(paths[0], data[1])
    disk.damage(paths[1], data[0])
    again = reopen(disk, high_watermark=Offset(14))
    assert second.base_offset > base
    assert again.log_end_offset == base
    assert again.report.known_end == 14
    assert values(again) == written[:base]
