"""A log tells what it has lost from what it has deleted: `segment-inventory` and other evidence."""

from collections.abc import Callable

import pytest
from log_fixtures import (
    DIRECTORY,
    SMALL,
    append_in_txn,
    contents,
    end_txn,
    fill,
    open_log,
    reopen,
    replicate,
    segment_bases,
    values,
)
from test_recovery import SIZE, path_of, put

from ottla.cli.commands.log_verify import verify
from ottla.protocol.faults import CorruptBatch
from ottla.protocol.types import Offset
from ottla.runtime.ports import OpenMode
from ottla.storage.log.files import Kind
from ottla.storage.log.inventory import (
    FILE_NAME,
    FoundSegment,
    Inventory,
    SegmentEntry,
    decode,
    encode,
    find_missing,
)
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimDisk

COUNT = 20
INVENTORY = f"{DIRECTORY}/{FILE_NAME}"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"
KEPT = LogCheckpoint(keeps_inventory=True)


def closed_log(count: int = COUNT, config: LogConfig = SMALL) -> tuple[SimDisk, list[bytes]]:
    """Return a disk with a log of several segments that was closed."""
    disk = SimDisk()
    log = open_log(disk, config, checkpoint=KEPT)
    written = fill(log, count)
    log.close()
    return disk, written


def open_again(disk: SimDisk, config: LogConfig = SMALL, *, is_clean: bool = True, **more) -> Log:
    points = {"recovery_point": Offset(COUNT), "high_watermark": Offset(COUNT), **more}
    return reopen(disk, config, is_clean=is_clean, keeps_inventory=True, **points)


def shorten(disk: SimDisk, path: str, length: int) -> None:
    file = disk.open(path, OpenMode.READ_WRITE)
    file.truncate(length)
    file.close()


def missing(log: Log) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in log.report.missing]


DAMAGES: dict[str, Callable[[SimDisk, str], None]] = {
    "removed": lambda disk, path: disk.remove(path),
    "emptied": lambda disk, path: shorten(disk, path, 0),
    "cut at a batch": lambda disk, path: shorten(disk, path, 2 * SIZE),
    "cut in a batch": lambda disk, path: shorten(disk, path, 2 * SIZE + 20),
    "longer": lambda disk, path: put(disk, path, b"garbage", disk.size(path)),
}


def test_undamaged_log_misses_nothing() -> None:
    disk, written = closed_log()
    for is_clean in (True, False):
        log = open_again(disk, is_clean=is_clean)
        assert missing(log) == []
        assert log.report.losses == log.report.rebuilt == []
        assert values(log) == written


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_sealed_segment_is_missing(damage: str, number: int, is_clean: bool) -> None:
    disk, _ = closed_log()
    bases = segment_bases(open_again(disk))
    DAMAGES[damage](disk, path_of(bases[number], Kind.LOG))
    log = open_again(disk, is_clean=is_clean)
    assert missing(log) == [(bases[number], bases[number + 1])]
    assert log.log_end_offset == COUNT
    (loss,) = log.report.losses
    assert loss.is_known


@pytest.mark.parametrize("damage", DAMAGES)
def test_offsets_that_are_missing_are_not_skipped(damage: str) -> None:
    disk, written = closed_log()
    bases = segment_bases(open_again(disk))
    DAMAGES[damage](disk, path_of(bases[1], Kind.LOG))
    log = open_again(disk)
    log.expect_missing()
    for offset in range(bases[1], bases[2]):
        with pytest.raises(CorruptBatch):
            log.read(Offset(offset), 1, upto=Offset(COUNT))
    for offset in (*range(bases[1]), *range(bases[2], COUNT)):
        part = log.read(Offset(offset), 1, upto=Offset(COUNT))
        assert part.base_offset == offset
    assert len(written) == COUNT


def test_log_without_its_first_segment_starts_where_it_did() -> None:
    disk, _ = closed_log()
    bases = segment_bases(open_again(disk))
    disk.remove(path_of(0, Kind.LOG))
    log = open_again(disk)
    assert log.log_start_offset == bases[1], "nothing before is readable"
    log.expect_missing()
    assert log.log_start_offset == 0, "followers must not delete theirs"
    with pytest.raises(CorruptBatch):
        log.read(Offset(0), 1, upto=Offset(COUNT))


def test_first_segment_is_missed_without_an_inventory() -> None:
    disk, _ = closed_log()
    bases = segment_bases(open_again(disk))
    disk.remove(INVENTORY)
    disk.remove(path_of(0, Kind.LOG))
    assert missing(open_again(disk)) == [(0, bases[1])]


def test_losses_are_found_again_after_another_restart() -> None:
    disk, _ = closed_log()
    bases = segment_bases(open_again(disk))
    disk.remove(path_of(bases[1], Kind.LOG))
    log = open_again(disk)
    log.expect_missing()
    log.close()
    assert missing(open_again(disk)) == [(bases[1], bases[2])]


def test_accepted_losses_are_reported_once() -> None:
    disk, _ = closed_log()
    bases = segment_bases(open_again(disk))
    for number in (0, 2):
        disk.remove(path_of(bases[number], Kind.LOG))
    log = open_again(disk)
    log.accept_losses()
    log.close()
    again = open_again(disk)
    assert missing(again) == []
    assert again.log_start_offset == bases[1]


# -- what is no loss ---------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_deleted_truncated_and_compacted_segments_are_not_missing(is_clean: bool) -> None:
    disk, _ = closed_log()
    log = open_again(disk)
    log.set_high_watermark(Offset(COUNT))
    bases = segment_bases(log)
    log.delete_segments(bases[:2])
    log.advance_log_start(Offset(bases[2] + 1))
    log.truncate_to(Offset(bases[3] + 1))
    fill(log, 8, start=100)
    end = log.log_end_offset
    log.close()
    points = {"recovery_point": end, "high_watermark": end}
    # The checkpoint of the log start is as old as it may be.
    again = reopen(disk, is_clean=is_clean, keeps_inventory=True, log_start_offset=1, **points)
    assert missing(again) == again.report.losses == []
    assert again.log_start_offset == bases[2] + 1


def test_gap_at_the_end_of_a_compacted_segment_is_not_missing() -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, is_compacted=True)
    disk = SimDisk()
    log = open_log(disk, config, checkpoint=KEPT)
    for offset in (0, 1, 2, 7, 8, 9, 15, 16):
        replicate(log, offset, b"value-%06d" % offset)
    log.roll(Offset(20))
    replicate(log, 20, b"last")
    before = contents(log)
    log.close()
    for is_clean in (True, False):
        points = {"recovery_point": Offset(21), "high_watermark": Offset(21)}
        again = reopen(disk, config, is_clean=is_clean, keeps_inventory=True, **points)
        assert missing(again) == []
        assert contents(again) == before


# -- checkpoints that are wrong ------------------------------------------------------------


@pytest.mark.parametrize("start", [7, COUNT, 99_999])
@pytest.mark.parametrize("is_clean", [True, False])
def test_log_start_that_only_the_checkpoint_names_is_ignored(start: int, is_clean: bool) -> None:
    disk, written = closed_log()
    log = open_again(disk, is_clean=is_clean, log_start_offset=Offset(start))
    assert (log.log_start_offset, log.log_end_offset) == (0, COUNT)
    assert values(log) == written


def test_log_start_beyond_the_end_is_ignored_without_an_inventory() -> None:
    disk, written = closed_log()
    disk.remove(INVENTORY)
    log = open_again(disk, log_start_offset=Offset(99_999))
    assert values(log) == written


def test_log_start_of_another_broker_is_used() -> None:
    """Kafka ran on the directory: checkpoint and leader epochs agree, the inventory is old."""
    disk, written = closed_log()
    put(disk, EPOCHS, b"0\n1\n1 6\n")
    log = open_again(disk, log_start_offset=Offset(6))
    assert log.log_start_offset == 6
    assert values(log) == written[6:]


@pytest.mark.parametrize("point", ["recovery_point", "high_watermark"])
def test_single_checkpoint_beyond_the_end_is_no_loss_after_a_clean_stop(point: str) -> None:
    disk, written = closed_log()
    log = open_again(disk, **{point: Offset(99_999)})
    assert log.report.losses == []
    assert values(log) == written


def grow(log: Log, written: list[bytes]) -> None:
    """Append until two more segments are sealed and durable, and add the values to ``written``."""
    segments = len(log.segments) + 2
    while len(log.segments) < segments:
        written += fill(log, 1, start=len(written))
    log.flush()


def test_segment_that_grew_after_a_clean_stop_is_not_missing_after_crashes() -> None:
    """The first crash leaves the inventory of the clean stop, the second one what was written."""
    disk, written = closed_log(COUNT - 1)
    log = open_again(disk, high_watermark=Offset(COUNT - 1))
    stopped = disk.read(INVENTORY)
    grow(log, written)
    put(disk, INVENTORY, stopped, 0)
    shorten(disk, INVENTORY, len(stopped))
    grown = open_again(disk, is_clean=False)
    grow(grown, written)
    assert disk.read(INVENTORY) != stopped
    again = open_again(disk, is_clean=False)
    assert missing(again) == []
    assert values(again) == written


def test_lost_end_is_known_until_the_log_has_grown_again() -> None:
    disk, written = closed_log()
    bases = segment_bases(open_again(disk))
    disk.remove(path_of(bases[-1], Kind.LOG))
    log = open_again(disk)
    log.expect_missing()
    assert log.is_end_lost
    assert log.report.known_end == COUNT
    log.close()
    end = bases[-1]
    again = open_again(disk, recovery_point=Offset(end), high_watermark=Offset(end))
    again.expect_missing()
    assert again.is_end_lost, "the checkpoints have forgotten it, the inventory has not"
    for offset in range(end, COUNT):
        replicate(again, offset, written[offset])
    assert not again.is_end_lost


@pytest.mark.parametrize(
    "content",
    [b"0\n1\n1 0\n", b"0\n2\n1 0\n3 12\n", b"0\n2\n1 0\n2 5\n", b"0\n1\n3 0\n", b"garbage"],
)
def test_leader_epochs_that_contradict_the_batches_are_rebuilt(content: bytes) -> None:
    disk = SimDisk()
    log = open_log(disk, checkpoint=KEPT)
    for offset in range(COUNT):
        replicate(log, offset, b"value", epoch=1 if offset < 5 else 2 if offset < 12 else 3)
    expected = log.epochs.entries
    log.close()
    put(disk, EPOCHS, content)
    assert open_again(disk).epochs.entries == expected


# -- aborted transactions --------------------------------------------------------------------


def log_with_aborts() -> tuple[SimDisk, list[tuple[int, int, int, int]], list[int]]:
    disk = SimDisk()
    log = open_log(disk, checkpoint=KEPT)
    for number in range(6):
        append_in_txn(log, 7, number, b"value-%06d" % number)
        end_txn(log, 7, commit=number % 2 == 0)
    log.set_high_watermark(log.log_end_offset)
    aborted = log.collect_aborted(Offset(0), log.log_end_offset)
    bases = [each.base_offset for each in log.segments if not each.txn_index.is_empty]
    log.close()
    assert len(aborted) == 3
    assert len(bases) > 1
    return disk, aborted, bases


def flip(disk: SimDisk, path: str) -> None:
    data = bytearray(disk.read(path))
    data[9] ^= 1  # the producer id
    put(disk, path, bytes(data))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("damage", ["removed", "emptied", "flipped", "stale"])
def test_damaged_transaction_index_is_rebuilt(damage: str, number: int, is_clean: bool) -> None:
    disk, aborted, bases = log_with_aborts()
    path = path_of(bases[number], Kind.TXN_INDEX)
    if damage == "removed":
        disk.remove(path)
    elif damage == "emptied":
        shorten(disk, path, 0)
    elif damage == "flipped":
        flip(disk, path)
    else:
        put(disk, path, disk.read(path_of(bases[number - 1], Kind.TXN_INDEX)))
    end = Offset(12)
    log = reopen(disk, is_clean=is_clean, keeps_inventory=True, recovery_point=end)
    log.set_high_watermark(end)
    assert log.collect_aborted(Offset(0), end) == aborted


@pytest.mark.parametrize("damage", ["removed", "emptied"])
def test_transaction_index_damaged_in_use_is_rebuilt(damage: str) -> None:
    disk, aborted, bases = log_with_aborts()
    log = reopen(disk, is_clean=True, keeps_inventory=True, recovery_point=Offset(12))
    log.set_high_watermark(Offset(12))
    path = path_of(bases[0], Kind.TXN_INDEX)
    if damage == "removed":
        disk.remove(path)
    else:
        shorten(disk, path, 0)
    assert log.collect_aborted(Offset(0), Offset(12)) == aborted


# -- the file ----------------------------------------------------------------------------------

ENTRIES = tuple(SegmentEntry(Offset(at), Offset(at + 9), 100, 0, 0) for at in (10, 20, 30))
EXAMPLE = Inventory(Offset(12), Offset(40), 4711, ENTRIES)


def test_inventory_is_read_as_it_was_written() -> None:
    assert decode(encode(EXAMPLE)) == EXAMPLE
    assert decode(encode(EXAMPLE._replace(log_end=None, segments=()))) is not None


def test_damaged_inventory_counts_as_absent() -> None:
    data = encode(EXAMPLE)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1
        assert decode(bytes(flipped)) is None
        assert decode(data[:at]) is None
    assert decode(b"") is None


def test_missing_ranges_of_neighbours_are_joined() -> None:
    inventory = Inventory(Offset(0), None, 0, ENTRIES)
    present = [FoundSegment(Offset(30), 100), FoundSegment(Offset(40), 7)]
    (only,) = find_missing(inventory, present, Offset(15), "/d")
    assert (only.start, only.end) == (15, 30)
    assert find_missing(inventory, present, Offset(30), "/d") == []


@pytest.mark.parametrize("kind", [Kind.OFFSET_INDEX, Kind.TIME_INDEX])
def test_index_that_is_removed_in_use_is_rebuilt(kind: Kind) -> None:
    disk, written = closed_log()
    log = open_again(disk)
    disk.remove(path_of(0, kind))
    assert values(log) == written


# -- ottla log verify --------------------------------------------------------------------------


@pytest.mark.parametrize("has_inventory", [True, False])
@pytest.mark.parametrize("damage", ["removed", "emptied", "cut at a batch"])
def test_verify_finds_a_hole(damage: str, has_inventory: bool) -> None:
    disk, _ = closed_log()
    assert list(verify(disk, DIRECTORY)) == []
    bases = segment_bases(open_again(disk))
    if not has_inventory:
        disk.remove(INVENTORY)
    DAMAGES[damage](disk, path_of(bases[1], Kind.LOG))
    if damage == "removed":
        for kind in (Kind.OFFSET_INDEX, Kind.TIME_INDEX):
            disk.remove(path_of(bases[1], kind))
    problems = list(verify(disk, DIRECTORY))
    assert any("missing" in each.problem or "instead of" in each.problem for each in problems)


@pytest.mark.parametrize("damage", ["removed", "emptied", "flipped"])
def test_verify_finds_a_changed_transaction_index(damage: str) -> None:
    disk, _, bases = log_with_aborts()
    assert list(verify(disk, DIRECTORY)) == []
    path = path_of(bases[0], Kind.TXN_INDEX)
    if damage == "removed":
        disk.remove(path)
    elif damage == "emptied":
        shorten(disk, path, 0)
    else:
        flip(disk, path)
    assert path in [each.path for each in verify(disk, DIRECTORY)]
