"""The metadata log on disk: positions, appends, truncation, power loss, snapshots, retention."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.protocol.faults import CorruptBatch, OffsetOutOfRange, StorageFailed
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.records.batch import batches
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, Uuid
from ottla.raft.core.effects import (
    AppendControl,
    AppendRecords,
    ControlRecord,
    KRaftVersionRecord,
    LeaderChange,
    VotersRecord,
)
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.voters import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet
from ottla.raft.metadata_log import (
    MetadataLog,
    Retention,
    UnusableMetadataLog,
    checked_batches,
    metadata_log_config,
)
from ottla.raft.snapshots import (
    CorruptSnapshot,
    SnapshotDownload,
    SnapshotWriter,
    parse_snapshot_name,
    read_bootstrap,
    snapshot_name,
    write_initial_snapshot,
)
from ottla.runtime.ports import OpenMode, Syncable
from simulation.disk import SimDisk
from simulation.platter import Keep

DIRECTORY = "/meta/__cluster_metadata-0"


class FixedClock:
    def __init__(self) -> None:
        self.wall = 1_700_000_000_000

    def now(self) -> Millis:
        return Millis(self.wall)

    def monotonic(self) -> Millis:
        return Millis(0)


class SyncNow:
    """A committer without a thread."""

    async def close(self) -> None:
        pass

    async def commit(self, files: Sequence[Syncable]) -> None:
        for file in files:
            file.sync()


def at(epoch: int, offset: int) -> LogPosition:
    return LogPosition(LeaderEpoch(epoch), Offset(offset))


def voter(node_id: int) -> Voter:
    key = ReplicaKey(NodeId(node_id), Uuid(bytes([node_id]) * 16))
    return Voter(key, (Endpoint("CONTROLLER", f"n{node_id}", 9093),), VersionRange(0, 1))


VOTERS = VoterSet((voter(1), voter(2)))


class Bench:
    """A log on a simulated disk, with shorthands for what tests do to it."""

    def __init__(self, disk: SimDisk | None = None, segment_bytes: int = 1 << 20) -> None:
        self.clock = FixedClock()
        self.disk = disk or SimDisk(0, clock=self.clock)
        self.config = metadata_log_config(segment_bytes)
        self.log = self.open()

    def open(self) -> MetadataLog:
        self.log = MetadataLog.open(self.disk, "/meta", self.clock, self.config)
        return self.log

    def put(self, epoch: int, *values: str) -> None:
        encoded = [encoded_record(value) for value in values]
        base = self.log.end().offset
        self.log.append_records(
            AppendRecords(base, LeaderEpoch(epoch), len(encoded), None), encoded
        )

    def control(self, epoch: int, *records: ControlRecord) -> None:
        base = self.log.end().offset
        self.log.append_control(AppendControl(base, LeaderEpoch(epoch), records))

    def flush(self) -> None:
        asyncio.run(self.log.flush(SyncNow()))

    def snapshot(self, position: LogPosition, *values: str) -> None:
        writer = SnapshotWriter(self.log.snapshots, position, self.clock.now())
        writer.begin(self.clock.now(), 1, VOTERS)
        writer.append([encoded_record(value) for value in values])
        writer.finish()
        writer.file.sync()
        writer.freeze()

    def lose_power(self, keep: Keep = Keep.NOTHING) -> None:
        self.disk.crash(keep)
        self.disk.restart()


def record(value: str) -> Versioned:
    return Versioned(ConfigRecord(2, "topic", "name", value), 0)


def encoded_record(value: str) -> bytes:

    return encode_framed(record(value))


# -- positions ---------------------------------------------------------------


def test_empty_log_ends_at_offset_0() -> None:
    log = Bench().log
    assert (log.start_offset(), log.end()) == (0, at(0, 0))
    assert log.end_offset_for_epoch(LeaderEpoch(3)) == at(0, 0)


def test_end_offset_for_epoch_returns_positions() -> None:
    bench = Bench()
    bench.put(2, "a", "b")
    bench.put(2, "c")
    bench.put(5, "d")
    log = bench.log
    assert log.end() == at(5, 4)
    assert [log.end_offset_for_epoch(LeaderEpoch(e)) for e in (1, 2, 3, 5, 9)] == [
        at(0, 0),
        at(2, 3),
        at(2, 3),
        at(5, 4),
        at(5, 4),
    ]
    assert [log.epoch_before(Offset(o)) for o in (0, 1, 3, 4)] == [0, 2, 2, 5]


def test_truncation_removes_epochs() -> None:
    bench = Bench()
    bench.put(2, "a")
    bench.put(5, "b")
    bench.log.truncate_to(Offset(1))
    assert bench.log.end() == at(2, 1)
    bench.put(6, "c")
    assert bench.log.end() == at(6, 2)


def test_read_returns_whole_batches_and_at_least_one() -> None:
    bench = Bench()
    bench.put(1, "a", "b")
    bench.put(1, "c")
    bench.put(1, "d")
    first = bench.log.read(Offset(0), 1)
    assert [header.base_offset for _, header in batches(first)] == [0]
    assert len(bench.log.read(Offset(0), len(first) + 5)) == len(first)
    assert [h.base_offset for _, h in batches(bench.log.read(Offset(2), 1 << 20))] == [2, 3]
    assert bench.log.read(Offset(0), 1 << 20, Offset(2)) == first
    assert bench.log.read(Offset(4), 1 << 20) == b""
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(Offset(5), 100)


# -- durability --------------------------------------------------------------


def test_flushed_records_survive_a_power_loss() -> None:
    bench = Bench()
    bench.put(1, "a")
    bench.flush()
    bench.put(1, "b")
    bench.lose_power()
    assert bench.open().end() == at(1, 1)


def test_truncation_is_durable_before_it_returns() -> None:
    bench = Bench()
    bench.put(1, "a")
    bench.put(1, "b")
    bench.flush()
    bench.log.truncate_to(Offset(1))
    bench.lose_power()
    assert bench.open().end() == at(1, 1)


def test_unsynced_records_are_synced_at_the_start() -> None:
    bench = Bench()
    bench.put(1, "a")
    bench.disk.kill()
    bench.disk.restart()
    assert bench.open().end() == at(1, 1)
    bench.lose_power()
    assert bench.open().end() == at(1, 1)


def test_torn_end_is_truncated() -> None:
    bench = Bench()
    bench.put(1, "a")
    bench.put(1, "b" * 500)
    path = f"{DIRECTORY}/{0:020d}.log"
    bench.disk.kill()
    bench.disk.restart()
    file = bench.disk.open(path, OpenMode.READ_WRITE)
    size = next(header.size for _, header in batches(bench.disk.read(path)))
    file.truncate(size + 100)
    file.close()
    assert bench.open().end() == at(1, 1)


def test_epochs_come_from_the_batches_not_the_checkpoint() -> None:
    bench = Bench()
    bench.put(1, "a")
    bench.put(4, "b")
    bench.flush()
    bench.disk.kill()
    bench.disk.restart()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    file = bench.disk.open(path, OpenMode.CREATE)
    file.truncate(0)
    file.pwrite(b"0\n1\n9 1\n", 0)
    file.close()
    assert bench.open().end() == at(4, 2)


# -- membership --------------------------------------------------------------


def test_voters_come_from_the_log_or_the_configuration() -> None:
    bench = Bench()
    static = VoterSet((voter(7),))
    assert bench.log.membership(static).voters == static
    bench.control(1, LeaderChange(NodeId(1), (NodeId(1),), (NodeId(1),)))
    assert bench.log.membership(static).voters == static
    bench.control(1, KRaftVersionRecord(1), VotersRecord(VOTERS))
    found = bench.log.membership(static)
    assert (found.voters, found.kraft_version, found.voters_offset) == (VOTERS, 1, 2)


def test_formatted_directory_starts_with_its_voters() -> None:
    disk = SimDisk(0)
    write_initial_snapshot(disk, DIRECTORY, VOTERS, Millis(1))
    disk.crash(Keep.NOTHING)
    disk.restart()
    bench = Bench(disk)
    assert bench.log.latest_snapshot() == at(0, 0)
    found = bench.log.membership(VoterSet())
    assert (found.voters, found.kraft_version) == (VOTERS, 1)


# -- fetched bytes -----------------------------------------------------------


def fetched() -> bytes:
    bench = Bench()
    bench.control(3, KRaftVersionRecord(1), VotersRecord(VOTERS))
    bench.put(3, "a", "b")
    return bench.log.read(Offset(0), 1 << 20)


def test_fetched_bytes_are_checked_for_control_records() -> None:
    data = fetched()
    found = checked_batches(data + data[:30])
    assert found is not None
    assert (found.base_offset, found.end, found.payload) == (0, at(3, 4), data)
    assert [control.offset for control in found.controls] == [0, 1]
    bench = Bench()
    bench.log.append_fetched(found)
    assert bench.log.end() == at(3, 4)
    assert bench.log.read(Offset(0), 1 << 20) == data


def test_incomplete_batch_is_ignored() -> None:
    assert checked_batches(fetched()[:40]) is None


def test_damaged_bytes_are_rejected() -> None:
    data = bytearray(fetched())
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        checked_batches(bytes(data))


def test_batches_with_gaps_are_rejected() -> None:
    data = fetched()
    starts = [start for start, _ in batches(data)]
    with pytest.raises(CorruptBatch, match="expected 4"):
        checked_batches(data[starts[1] :] + data[starts[1] :])
    older = Bench()
    older.put(9, "x")
    older.put(9, "y")
    newer = bytearray(older.log.read(Offset(0), 1 << 20))
    second = [start for start, _ in batches(newer)][1]
    newer[second + 12 : second + 16] = (8).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="older epoch"):
        checked_batches(bytes(newer))


# -- snapshots ---------------------------------------------------------------


def test_snapshot_names_are_parsed() -> None:
    assert snapshot_name(at(7, 1500)) == "00000000000000001500-0000000007.checkpoint"
    assert parse_snapshot_name(snapshot_name(at(7, 1500))) == at(7, 1500)
    for other in ("1-2.checkpoint", snapshot_name(at(7, 1)) + ".part", "9" * 20 + "-" + "0" * 10):
        assert parse_snapshot_name(other) is None


def filled() -> Bench:
    bench = Bench(segment_bytes=400)
    for value in "abcdefgh":
        bench.put(3, value * 60)
    bench.flush()
    return bench


def test_snapshot_reads_back_and_is_durable() -> None:
    bench = filled()
    bench.snapshot(at(3, 5), "a", "b")
    bench.lose_power()
    log = bench.open()
    assert log.latest_snapshot() == at(3, 5)
    reader = log.snapshots.open(at(3, 5))
    assert [r for batch in reader.batches() for r in batch.records] == [record("a"), record("b")]
    head = reader.head()
    assert (head.last_timestamp, head.kraft_version, head.voters) == (bench.clock.wall, 1, VOTERS)


def test_unfinished_snapshot_is_deleted_at_the_start() -> None:
    bench = filled()
    writer = SnapshotWriter(bench.log.snapshots, at(3, 5), Millis(1))
    writer.begin(Millis(5), 1, VOTERS)
    bench.disk.kill()
    bench.disk.restart()
    assert bench.open().latest_snapshot() is None
    assert not [name for name in bench.disk.list(DIRECTORY) if "checkpoint.part" in name]


def test_damaged_snapshot_stops_the_start() -> None:
    bench = filled()
    bench.snapshot(at(3, 5), "a", "b")
    bench.log.replace_by(at(3, 5))  # the log has no record that the snapshot covers
    path = f"{DIRECTORY}/{snapshot_name(at(3, 5))}"
    whole = bench.disk.read(path)
    for damaged in (whole[:-1], whole[:100], whole + whole, _flipped(whole), b""):
        file = bench.disk.open(path, OpenMode.READ_WRITE)
        file.truncate(0)
        file.pwrite(damaged, 0)
        file.close()
        with pytest.raises(UnusableMetadataLog, match=r"checkpoint.*--rejoin-quorum"):
            bench.open()


def test_unneeded_damaged_snapshot_is_moved_aside() -> None:
    bench = filled()
    bench.snapshot(at(3, 5), "a", "b")
    path = f"{DIRECTORY}/{snapshot_name(at(3, 5))}"
    damaged = _flipped(bench.disk.read(path))
    put_file(bench.disk, path, damaged)
    end = bench.log.end()

    reopened = bench.open()

    assert reopened.latest_snapshot() is None
    assert reopened.end() == end
    assert bench.disk.read(f"{path}.damaged-1") == damaged


def put_file(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, OpenMode.CREATE)
    file.truncate(0)
    file.pwrite(data, 0)
    file.sync()
    file.close()


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 0x40
    return bytes(changed)


def install(bench: Bench, snapshot: LogPosition) -> None:
    other = filled()
    other.snapshot(snapshot, "a")
    data = other.disk.read(f"{DIRECTORY}/{snapshot_name(snapshot)}")
    download = SnapshotDownload(bench.log.snapshots, snapshot)
    download.write(0, data[:50])
    download.write(50, data[50:])
    for _ in download.reader().check():
        pass
    download.file.sync()
    download.freeze()


def test_installed_snapshot_replaces_the_log() -> None:
    bench = Bench()
    bench.put(1, "x")
    install(bench, at(3, 5))
    bench.log.replace_by(at(3, 5))
    assert (bench.log.start_offset(), bench.log.end()) == (5, at(3, 5))
    bench.put(4, "y")
    assert bench.log.end() == at(4, 6)
    bench.flush()
    bench.lose_power()
    assert (bench.open().start_offset(), bench.log.end()) == (5, at(4, 6))


@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_crash_before_the_log_is_emptied_is_completed_at_the_start(epoch: int) -> None:
    """Whatever the log contains, shorter, longer or newer: the snapshot is committed."""
    for count in (1, 7):
        bench = Bench()
        for value in range(count):
            bench.put(epoch, str(value))
        bench.flush()
        install(bench, at(4, 5))
        bench.lose_power()
        assert (bench.open().start_offset(), bench.log.end()) == (5, at(4, 5))


def test_log_that_contains_the_snapshot_position_is_kept() -> None:
    bench = filled()
    bench.snapshot(at(3, 5), "a")
    assert (bench.open().start_offset(), bench.log.end()) == (0, at(3, 8))


def test_gap_between_snapshot_and_log_stops_the_start() -> None:
    bench = filled()
    bench.snapshot(at(3, 5), "a")
    bench.log.trim(Retention(bytes_max=0), Offset(8))
    bench.flush()
    bench.disk.remove(f"{DIRECTORY}/{snapshot_name(at(3, 5))}")
    with pytest.raises(UnusableMetadataLog, match="no snapshot reaches"):
        bench.open()


# -- retention ---------------------------------------------------------------


def test_trimming_keeps_the_newest_snapshot_and_later_records() -> None:
    bench = filled()
    bench.snapshot(at(3, 2), "a")
    bench.snapshot(at(3, 5), "a")
    bench.log.trim(Retention(bytes_max=0, age_ms_max=-1), Offset(8))
    log = bench.log
    assert log.snapshots.all == [at(3, 5)]
    assert (log.start_offset(), log.end(), log.epoch_before(Offset(5))) == (5, at(3, 8), 3)
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(4), 100)
    assert (bench.open().start_offset(), bench.log.end()) == (5, at(3, 8))


def test_nothing_is_trimmed_within_retention() -> None:
    bench = filled()
    bench.snapshot(at(3, 2), "a")
    bench.snapshot(at(3, 5), "a")
    bench.log.trim(Retention(), Offset(8))
    assert bench.log.snapshots.all == [at(3, 2), at(3, 5)]
    assert bench.log.start_offset() == 0


def test_old_snapshot_is_deleted_once_there_is_a_newer_one() -> None:
    bench = filled()
    bench.snapshot(at(3, 2), "a")
    bench.snapshot(at(3, 5), "a")
    bench.clock.wall += 10
    bench.log.trim(Retention(age_ms_max=10), Offset(8))
    assert len(bench.log.snapshots.all) == 2
    bench.clock.wall += 1
    bench.log.trim(Retention(age_ms_max=10), Offset(8))
    assert bench.log.snapshots.all == [at(3, 5)]


# -- bootstrap ---------------------------------------------------------------


def test_bootstrap_checkpoint_returns_its_records() -> None:
    bench = filled()
    assert read_bootstrap(bench.disk, "/meta") is None
    bench.snapshot(at(0, 0), "a", "b")
    bench.disk.rename(f"{DIRECTORY}/{snapshot_name(at(0, 0))}", "/meta/bootstrap.checkpoint")
    assert read_bootstrap(bench.disk, "/meta") == [record("a"), record("b")]
    bench.disk.open("/meta/bootstrap.checkpoint", OpenMode.READ_WRITE).truncate(150)
    with pytest.raises(CorruptSnapshot):
        read_bootstrap(bench.disk, "/meta")


class FailsAsReal:
    """A committer that raises what failed, as the real one does."""

    async def close(self) -> None:
        pass

    async def commit(self, files: Sequence[Syncable]) -> None:
        try:
            for file in files:
                file.sync()
        except OSError as error:
            raise StorageFailed("/meta", str(error)) from error


def test_close_does_not_retry_a_failed_sync() -> None:
    did: list[str] = []
    bench = Bench(SimDisk(0, clock=FixedClock(), journal=lambda kind, *_: did.append(kind)))
    bench.put(1, "a")
    bench.disk.fail("sync", path_contains=".log")
    with pytest.raises(StorageFailed):
        asyncio.run(bench.log.flush(FailsAsReal()))
    bench.disk.heal()
    did.clear()
    with pytest.raises(StorageFailed):
        bench.log.close()
    assert "sync" not in did
