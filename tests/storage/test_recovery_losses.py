"""What recovery does not keep is reported, and set aside if it is known to have existed."""

from log_fixtures import batch_of, contents, fill, names, open_log, reopen, replicate
from test_recovery import ONE_SEGMENT, SIZE, path_of, put, stopped

from ottla.protocol.types import Offset
from ottla.runtime.ports import OpenMode
from ottla.storage.log.files import Kind, State, parse_name
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_recovery import Loss
from ottla.storage.log.set_aside import FILES_MAX, is_set_aside, set_bytes_aside, set_file_aside
from simulation.disk import SimDisk

LOG = path_of(0, Kind.LOG)
SEGMENTS = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=100)


def only_loss(log: Log) -> Loss:
    (loss,) = log.report.losses
    return loss


def segment_bases(disk: SimDisk) -> list[int]:
    parsed = [parse_name(name) for name in names(disk)]
    return [
        each.offset for each in parsed if each is not None and each[1:] == (Kind.LOG, State.LIVE)
    ]


def flip(disk: SimDisk, path: str, position: int) -> bytes:
    data = bytearray(disk.read(path))
    data[position] ^= 0x10
    put(disk, path, bytes(data))
    return bytes(data)


def rebase(disk: SimDisk, path: str, position: int, offset: int) -> bytes:
    """Change a batch's base offset, which its CRC does not cover; return the file."""
    put(disk, path, offset.to_bytes(8, "big"), position)
    return disk.read(path)


def shorten(disk: SimDisk, path: str, length: int) -> None:
    file = disk.open(path, OpenMode.READ_WRITE)
    file.truncate(length)
    file.close()


def test_undamaged_log_has_no_loss() -> None:
    disk, _ = stopped(10)
    assert reopen(disk, ONE_SEGMENT, recovery_point=10, high_watermark=10).report.losses == []
    assert reopen(disk, ONE_SEGMENT, is_clean=True, recovery_point=10).report.losses == []


def test_torn_tail_after_recovery_point_and_high_watermark_is_not_a_known_loss() -> None:
    disk, _ = stopped(10)
    shorten(disk, LOG, 10 * SIZE - 3)
    loss = only_loss(reopen(disk, ONE_SEGMENT, recovery_point=9, high_watermark=9))
    assert not loss.is_known
    assert (loss.first_offset, loss.length, loss.kept) == (9, SIZE - 3, ())
    assert not any(map(is_set_aside, names(disk)))


def test_reserved_space_is_not_a_loss() -> None:
    disk, _ = stopped(10)
    put(disk, LOG, bytes(1000), 10 * SIZE)
    assert reopen(disk, ONE_SEGMENT, recovery_point=10).report.losses == []


def test_flipped_bit_below_the_high_watermark_is_a_known_loss_and_its_bytes_are_kept() -> None:
    disk, _ = stopped(10)
    damaged = flip(disk, LOG, 4 * SIZE + 65)
    log = reopen(disk, ONE_SEGMENT, recovery_point=2, high_watermark=8)
    loss = only_loss(log)
    assert (loss.first_offset, loss.known_end) == (4, 8)
    assert (loss.path, loss.position, loss.length) == (LOG, 4 * SIZE, 6 * SIZE)
    assert loss.reason == "CRC does not match"
    assert loss.kept == (f"{LOG}.damaged-1",)
    assert disk.read(loss.kept[0]) == damaged[4 * SIZE :]
    assert log.log_end_offset == 4
    log.close()
    again = reopen(disk, ONE_SEGMENT, is_clean=True, recovery_point=4)
    assert again.report.losses == []
    assert [offset for offset, _ in contents(again)] == [0, 1, 2, 3], "what is kept is not read"


def test_batch_that_its_successor_contradicts_is_cut_and_kept() -> None:
    disk, expected = stopped(10)
    damaged = rebase(disk, LOG, 7 * SIZE, 15)
    log = reopen(disk, ONE_SEGMENT, recovery_point=2, high_watermark=10)
    assert contents(log) == list(enumerate(expected[:7]))
    loss = only_loss(log)
    assert (loss.first_offset, loss.known_end) == (7, 10)
    assert (loss.position, loss.length) == (7 * SIZE, 3 * SIZE)
    assert "offset 15" in loss.reason
    assert disk.read(loss.kept[0]) == damaged[7 * SIZE :]


def test_batch_with_a_lower_offset_than_those_before_it_is_cut_alone() -> None:
    disk, expected = stopped(10)
    rebase(disk, LOG, 8 * SIZE, 0)
    log = reopen(disk, ONE_SEGMENT, recovery_point=2, high_watermark=10)
    assert contents(log) == list(enumerate(expected[:8]))
    assert only_loss(log).first_offset == 8


def test_gap_that_a_lower_offset_than_before_the_gap_follows_is_kept() -> None:
    disk = SimDisk()
    log = open_log(disk, ONE_SEGMENT)
    for offset in (0, 1, 5, 6):
        replicate(log, offset, b"value-%06d" % offset)
    log.close()
    rebase(disk, LOG, 3 * SIZE, 1)
    log = reopen(disk, ONE_SEGMENT, recovery_point=2, high_watermark=7)
    assert [offset for offset, _ in contents(log)] == [0, 1, 5]
    assert only_loss(log).first_offset == 6


def test_gap_before_a_torn_batch_is_kept() -> None:
    disk = SimDisk()
    log = open_log(disk, ONE_SEGMENT)
    for offset in (0, 1, 5, 6):
        replicate(log, offset, b"value-%06d" % offset)
    log.close()
    rebase(disk, LOG, 3 * SIZE, 3)
    flip(disk, LOG, 3 * SIZE + 65)
    log = reopen(disk, ONE_SEGMENT, recovery_point=2)
    assert [offset for offset, _ in contents(log)] == [0, 1, 5]
    assert only_loss(log).first_offset == 6


def test_batch_behind_a_gap_that_reaches_into_the_next_segment_is_cut() -> None:
    disk, expected = stopped(16, SEGMENTS)
    bases = segment_bases(disk)
    last = bases[1] - 1
    rebase(disk, LOG, last * SIZE, bases[1] + 1)
    log = reopen(disk, SEGMENTS, recovery_point=1, high_watermark=16)
    assert contents(log) == list(enumerate(expected[:last]))
    loss = only_loss(log)
    assert (loss.first_offset, loss.path, loss.position) == (last, LOG, last * SIZE)
    assert len(loss.kept) == len(bases)


def test_segments_after_a_known_loss_are_kept() -> None:
    disk, _ = stopped(16, SEGMENTS)
    bases = segment_bases(disk)
    flip(disk, path_of(bases[1], Kind.LOG), 65)
    loss = only_loss(reopen(disk, SEGMENTS, recovery_point=bases[1] + 1, high_watermark=16))
    assert loss.first_offset == bases[1]
    assert len(loss.kept) == 1 + len(bases[2:])
    assert segment_bases(disk) == bases[:2]
    assert not [name for name in names(disk) if name.endswith(State.DELETED.value)]


def test_missing_segment_is_a_loss() -> None:
    disk, _ = stopped(16, SEGMENTS)
    bases = segment_bases(disk)
    disk.remove(path_of(bases[1], Kind.LOG))
    loss = only_loss(reopen(disk, SEGMENTS, recovery_point=0, high_watermark=16))
    assert loss.first_offset == bases[1]
    assert loss.is_known
    assert f"offset {bases[1]} is missing" in loss.reason


def test_missing_end_after_a_clean_stop_is_a_known_loss() -> None:
    disk, _ = stopped(16, SEGMENTS)
    bases = segment_bases(disk)
    disk.remove(path_of(bases[-1], Kind.LOG))
    loss = only_loss(reopen(disk, SEGMENTS, is_clean=True, recovery_point=16, high_watermark=16))
    assert (loss.first_offset, loss.known_end) == (bases[-1], 16)
    assert "its end is missing" in loss.reason


def test_segment_cut_between_batches_after_a_clean_stop_is_a_known_loss() -> None:
    disk, _ = stopped(10)
    shorten(disk, LOG, 6 * SIZE)
    disk.remove(path_of(0, Kind.OFFSET_INDEX))
    loss = only_loss(reopen(disk, ONE_SEGMENT, is_clean=True, recovery_point=10))
    assert (loss.first_offset, loss.known_end, loss.position) == (6, 10, 6 * SIZE)


def test_all_segments_missing_is_a_known_loss() -> None:
    disk, _ = stopped(10)
    disk.remove(LOG)
    log = reopen(disk, ONE_SEGMENT, is_clean=True, recovery_point=10)
    assert only_loss(log).reason == "all segments are missing"
    assert log.log_end_offset == 0


def test_log_start_checkpoint_beyond_the_end_keeps_the_segments_aside() -> None:
    disk, _ = stopped(10)
    data = disk.read(LOG)
    log = reopen(disk, ONE_SEGMENT, is_clean=True, recovery_point=10, log_start_offset=50)
    loss = only_loss(log)
    assert (loss.first_offset, loss.known_end) == (10, 50)
    assert "log start checkpoint says 50" in loss.reason
    assert [disk.read(path) for path in loss.kept] == [data]
    assert log.log_start_offset == log.log_end_offset == 50


def test_unreadable_swap_is_set_aside_and_what_it_replaces_is_kept() -> None:
    disk, expected = stopped(10)
    swap = path_of(0, Kind.LOG, State.SWAP)
    put(disk, swap, b"some garbage that is no batch at all" * 3)
    log = reopen(disk, ONE_SEGMENT, recovery_point=10, high_watermark=10)
    assert [value for _, value in contents(log)] == expected
    loss = only_loss(log)
    assert not loss.is_known
    assert loss.kept == (f"{swap}.damaged-1",)


def test_empty_swap_does_not_replace_records() -> None:
    disk, expected = stopped(10)
    put(disk, path_of(0, Kind.LOG, State.SWAP), b"")
    log = reopen(disk, ONE_SEGMENT, recovery_point=10, high_watermark=10)
    assert [value for _, value in contents(log)] == expected


def test_number_of_files_set_aside_is_bounded() -> None:
    disk = SimDisk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 3)
    log.close()
    kept = [set_bytes_aside(disk, LOG, 0) for _ in range(FILES_MAX)]
    assert len(set(kept)) == FILES_MAX
    assert set_bytes_aside(disk, LOG, 0) is None
    assert set_file_aside(disk, LOG) is None
    assert disk.exists(LOG)


def test_loss_of_a_log_without_room_to_keep_more_is_still_cut_and_reported() -> None:
    disk, _ = stopped(16, SEGMENTS)
    bases = segment_bases(disk)
    for _ in range(FILES_MAX):
        set_bytes_aside(disk, LOG, 0)
    flip(disk, path_of(bases[1], Kind.LOG), 65)
    log = reopen(disk, SEGMENTS, recovery_point=0, high_watermark=16)
    assert only_loss(log).kept == ()
    assert log.log_end_offset == bases[1]
    batch = batch_of(b"goes on")
    assert log.append_as_leader(batch, leader_epoch=9, now=1).first_offset == Offset(bases[1])
