"""Damage in a metadata log is distinguished from a torn write, and repaired on request."""

import pytest
from test_raft_log import DIRECTORY, VOTERS, Bench, at, filled, put_file

from ottla.protocol.types import NodeId, Offset
from ottla.raft.core.effects import VotersRecord
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.voters import VoterSet
from ottla.raft.metadata_log import UnusableMetadataLog
from ottla.raft.recovery_point import FILE_NAME, RecoveryPoint
from ottla.raft.repair import RejoinMark, Repair, repair_log
from ottla.raft.snapshots import snapshot_name
from ottla.storage.log.files import Kind, file_name
from simulation.disk import SimDisk
from simulation.platter import Keep

ALONE = VoterSet((VOTERS.get(NodeId(1)),))  # type: ignore[arg-type]
REJOIN = Repair(is_rejoining=True)


def segment(base: int = 0) -> str:
    return f"{DIRECTORY}/{file_name(Offset(base), Kind.LOG)}"


def written(*, is_flushed: bool = True) -> Bench:
    """Return a log of ten records, one per batch."""
    bench = Bench()
    for number in range(10):
        bench.put(1, f"record-{number}")
    if is_flushed:
        bench.flush()
    return bench


def position_of(bench: Bench, offset: int) -> int:
    """Return the position of the batch with an offset."""
    return sum(len(bench.log.read(Offset(each), 1)) for each in range(offset))


def flip(bench: Bench, offset: int) -> None:
    """Damage one byte of the batch at an offset."""
    data = bytearray(bench.disk.read(segment()))
    data[position_of(bench, offset) + 70] ^= 0x01
    put_file(bench.disk, segment(), bytes(data))


def forget_recovery_point(bench: Bench) -> None:
    """Remove the file, as in a log of Kafka or of an earlier version."""
    bench.log.close()
    bench.disk.remove(f"{DIRECTORY}/{FILE_NAME}")


@pytest.mark.parametrize("has_recovery_point", [True, False])
def test_flipped_byte_followed_by_records_stops_the_start(has_recovery_point: bool) -> None:
    bench = written()
    where = position_of(bench, 4)
    flip(bench, 4)
    if not has_recovery_point:
        forget_recovery_point(bench)
    before = bench.disk.read(segment())

    with pytest.raises(UnusableMetadataLog) as refused:
        bench.open()

    text = str(refused.value)
    assert segment() in text
    assert f"byte {where} (offset 4)" in text
    assert "CRC does not match" in text
    assert "--rejoin-quorum" in text
    assert "--truncate-metadata-at" in text
    assert bench.disk.read(segment()) == before, "nothing is cut"


def test_damage_in_a_durable_last_batch_stops_the_start() -> None:
    bench = written()
    flip(bench, 9)
    with pytest.raises(UnusableMetadataLog, match="offset 9"):
        bench.open()


def test_damage_in_the_last_batch_after_a_clean_stop_stops_the_start() -> None:
    bench = written()
    flip(bench, 9)
    forget_recovery_point(bench)
    with pytest.raises(UnusableMetadataLog, match="offset 9"):
        bench.log.open(bench.disk, "/meta", bench.clock, bench.config, is_clean=True)


def test_missing_end_of_a_durable_log_stops_the_start() -> None:
    bench = written()
    whole = bench.disk.read(segment())
    put_file(bench.disk, segment(), whole[: position_of(bench, 6)])
    with pytest.raises(UnusableMetadataLog, match="ends at offset 6 and was durable up to 10"):
        bench.open()


def test_missing_segment_stops_the_start() -> None:
    bench = Bench(segment_bytes=1024)
    for number in range(60):
        bench.put(1, f"record-{number}")
    bench.flush()
    bases = [each.base_offset for each in bench.log._log.segments]
    assert len(bases) > 3
    bench.disk.remove(segment(bases[1]))
    with pytest.raises(UnusableMetadataLog, match=f"begins at offset {bases[2]}"):
        bench.open()


@pytest.mark.parametrize("seed", range(40))
def test_unsynced_records_left_by_a_power_loss_are_truncated(seed: int) -> None:
    bench = Bench(SimDisk(seed))
    for number in range(5):
        bench.put(1, f"durable-{number}")
    bench.flush()
    for number in range(5):
        bench.put(1, "lost" * 100 * number)
    bench.disk.crash(Keep.SEEDED)
    bench.disk.restart()
    assert 5 <= bench.open().end().offset <= 10


def test_torn_last_record_is_truncated() -> None:
    bench = written(is_flushed=False)
    whole = bench.disk.read(segment())
    put_file(bench.disk, segment(), whole[:-7])
    assert bench.open().end().offset == 9


def test_truncation_by_a_leader_lowers_the_recovery_point_first() -> None:
    bench = written()
    bench.log.truncate_to(Offset(3))
    assert RecoveryPoint(bench.disk, DIRECTORY).offset == 3
    assert bench.open().end().offset == 3


# -- repair --------------------------------------------------------------------


def repair(bench: Bench, wanted: Repair, static: VoterSet = VOTERS) -> None:
    repair_log(bench.disk, "/meta", wanted, static, NodeId(1))


def test_rejoin_keeps_records_before_the_damage_and_moves_the_others_aside() -> None:
    bench = written()
    flip(bench, 4)
    damaged = bench.disk.read(segment())
    where = position_of(bench, 4)

    repair(bench, REJOIN)

    assert RejoinMark(bench.disk, "/meta").is_set
    assert bench.disk.read(f"{segment()}.damaged-1") == damaged[where:]
    assert bench.open().end() == at(1, 4)
    assert bench.open().end() == at(1, 4), "what is set aside is not read"


def test_single_voter_cannot_rejoin() -> None:
    bench = written()
    flip(bench, 4)
    with pytest.raises(UnusableMetadataLog, match="only voter"):
        repair(bench, REJOIN, ALONE)
    assert not RejoinMark(bench.disk, "/meta").is_set
    with pytest.raises(UnusableMetadataLog):
        bench.open()


def test_single_voter_is_detected_from_the_valid_records() -> None:
    bench = Bench()
    bench.control(1, VotersRecord(ALONE))
    for number in range(9):
        bench.put(1, f"record-{number}")
    bench.flush()
    flip(bench, 4)
    with pytest.raises(UnusableMetadataLog, match="only voter"):
        repair(bench, REJOIN, VOTERS)


def test_truncation_requires_the_offset_of_the_damage() -> None:
    bench = written()
    flip(bench, 4)
    with pytest.raises(UnusableMetadataLog, match="must be 4, not 5"):
        repair(bench, Repair(truncate_at=Offset(5)))
    repair(bench, Repair(truncate_at=Offset(4)))
    assert not RejoinMark(bench.disk, "/meta").is_set
    assert bench.open().end().offset == 4


@pytest.mark.parametrize("wanted", [REJOIN, Repair(truncate_at=Offset(4))])
def test_intact_log_is_not_repaired(wanted: Repair) -> None:
    bench = written()
    repair(bench, wanted)
    assert bench.open().end().offset == 10
    assert not RejoinMark(bench.disk, "/meta").is_set


def test_rejoin_moves_segments_after_the_damage_aside() -> None:
    bench = Bench(segment_bytes=1024)
    for number in range(60):
        bench.put(1, f"record-{number}")
    bench.flush()
    bases = [each.base_offset for each in bench.log._log.segments]
    data = bytearray(bench.disk.read(segment(bases[1])))
    data[70] ^= 0x01
    put_file(bench.disk, segment(bases[1]), bytes(data))

    repair(bench, REJOIN)

    assert bench.open().end().offset == bases[1]
    for base in bases[2:]:
        assert bench.disk.exists(f"{segment(base)}.damaged-1")


def test_rejoin_without_a_usable_snapshot_starts_with_an_empty_log() -> None:
    bench = filled()
    newest: LogPosition = at(3, 5)
    bench.snapshot(newest, "a", "b")
    bench.log.replace_by(newest)
    bench.put(3, "c")
    bench.flush()
    path = f"{DIRECTORY}/{snapshot_name(newest)}"
    put_file(bench.disk, path, bench.disk.read(path)[:-1])

    repair(bench, REJOIN)

    assert bench.open().end().offset == 0
    assert bench.disk.exists(f"{path}.damaged-1")
