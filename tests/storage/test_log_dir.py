"""Log directories: ownership, what a start finds, what a stop leaves."""

import errno
from dataclasses import dataclass, field

import pytest

from ottla.protocol.faults import CorruptBatch, InconsistentTopicId, StorageFailed
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicPartition, Uuid
from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import OpenMode
from ottla.storage.directory.log_dir import (
    DirectoryInUse,
    LogDirectory,
    LogDirPorts,
    format_directory,
    open_directories,
)
from ottla.storage.directory.log_dir_checkpoints import REMOVED_MAX
from ottla.storage.directory.meta_properties import MetaPropertiesRefused
from ottla.storage.directory.partition_names import DirectoryKind
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from simulation.disk import SimCrash, SimDisk
from simulation.random import SimRandom

NODE, CLUSTER = NodeId(1), "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))
ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=400)
MARKER = ".kafka_cleanshutdown"


class FixedClock:
    def now(self) -> Millis:
        return Millis(1_000_000)

    def monotonic(self) -> Millis:
        return Millis(0)


@dataclass
class Machine:
    """A disk with formatted directories that outlives the processes on it."""

    paths: tuple[str, ...] = ("/d1",)
    seed: int = 0
    flushed: list[bytes | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk = SimDisk(seed=self.seed)
        self.random = SimRandom(self.seed)
        for path in self.paths:
            format_directory(self.ports, path, node_id=NODE, cluster_id=CLUSTER)

    @property
    def ports(self) -> LogDirPorts:
        return LogDirPorts(self.disk, FixedClock(), self.random)

    def start(self, path: str = "/d1") -> LogDirectory:
        directory = LogDirectory.open(self.ports, path, node_id=NODE, cluster_id=CLUSTER)
        self.report = directory.open_all(lambda _: CONFIG)
        return directory

    def reboot(self) -> LogDirectory:
        """Lose power, and restart."""
        self.disk.crash()
        self.disk.restart()
        return self.start()


def append(log: Log, *values: bytes) -> None:
    for value in values:
        batch = build_batch([Record(Offset(0), Millis(1), None, value)])
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(1))
    log.set_high_watermark(log.log_end_offset)


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1, upto=log.log_end_offset)
        records = read_records(part.file.pread(part.length, part.position))
        found += [record.value for record in records]
        offset = Offset(records[-1].offset + 1)
    return found


# -- ownership ---------------------------------------------------------


def test_directory_lock_of_another_process_is_reported() -> None:
    machine = Machine()
    first = machine.start()
    with pytest.raises(DirectoryInUse, match=r"/d1: another process holds \.lock"):
        machine.start()
    first.close()
    machine.start()


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "message"),
    [(2, CLUSTER, "belongs to node 1, this is node 2"), (1, "other", "this is cluster 'other'")],
)
def test_directory_of_another_owner_is_rejected_and_unchanged(
    node_id: int, cluster_id: str, message: str
) -> None:
    machine = Machine()
    machine.start().close()
    with pytest.raises(MetaPropertiesRefused, match=message):
        LogDirectory.open(machine.ports, "/d1", node_id=NodeId(node_id), cluster_id=cluster_id)
    assert machine.start().last_shutdown is not None


def test_unformatted_directory_is_rejected() -> None:
    machine = Machine()
    machine.disk.make_dirs("/new")
    with pytest.raises(MetaPropertiesRefused, match=r"no meta\.properties"):
        machine.start("/new")


def test_formatting_twice_is_rejected() -> None:
    machine = Machine()
    with pytest.raises(MetaPropertiesRefused, match="already formatted"):
        format_directory(machine.ports, "/d1", node_id=NODE, cluster_id=CLUSTER)


def test_directory_id_survives_restarts() -> None:
    machine = Machine()
    first = machine.start()
    identity = first.directory_id
    first.close()
    assert machine.start().directory_id == identity


def test_directory_that_cannot_be_written_is_offline_and_the_others_start() -> None:
    machine = Machine(("/d1", "/d2", "/d3"))
    machine.disk.fail("write", error=errno.EROFS, path_contains="/d2/", times=1)
    opened = open_directories(machine.ports, machine.paths, node_id=NODE)
    assert [directory.path for directory in opened.online] == ["/d1", "/d3"]
    assert list(opened.offline) == ["/d2"]


def test_directories_of_two_clusters_do_not_start_together() -> None:
    machine = Machine()
    format_directory(machine.ports, "/d2", node_id=NODE, cluster_id="other")
    machine.start().close(broker_epoch=5)
    with pytest.raises(MetaPropertiesRefused, match="belongs to cluster 'other'"):
        open_directories(machine.ports, ["/d1", "/d2"], node_id=NODE)
    again = machine.start()
    assert again.last_shutdown is not None
    assert again.last_shutdown.broker_epoch == 5


def test_copied_directory_is_rejected() -> None:
    machine = Machine()
    machine.disk.make_dirs("/d2")
    copy = machine.disk.read("/d1/meta.properties")
    replace_file(machine.disk, "/d2/meta.properties", copy)
    with pytest.raises(MetaPropertiesRefused, match=r"directory\.id of another directory"):
        open_directories(machine.ports, ["/d1", "/d2"], node_id=NODE)


# -- stop and start ------------------------------------------------------------


def test_clean_stop_is_trusted_and_keeps_everything() -> None:
    machine = Machine()
    directory = machine.start()
    log = directory.create_log(ORDERS, TOPIC_ID, CONFIG).log
    append(log, b"1", b"2", b"3")
    log.advance_log_start(Offset(1))
    directory.close(broker_epoch=42)
    assert machine.disk.read(f"/d1/{MARKER}") == b'{"version":0,"brokerEpoch":42}'
    again = machine.start()
    assert again.last_shutdown is not None
    assert again.last_shutdown.broker_epoch == 42
    assert not machine.disk.exists(f"/d1/{MARKER}")
    hosted = again.logs[ORDERS]
    assert hosted.topic_id == TOPIC_ID
    assert hosted.log.report.segments_checked == []
    assert (values(hosted.log), hosted.log.high_watermark) == ([b"2", b"3"], 3)


def test_clean_shutdown_marker_is_durably_removed_on_open() -> None:
    machine = Machine()
    machine.start().close()
    assert machine.disk.durable(f"/d1/{MARKER}") is not None
    machine.start()
    assert machine.disk.durable(f"/d1/{MARKER}") is None


def test_unclean_stop_is_checked_from_the_recovery_point() -> None:
    machine = Machine()
    directory = machine.start()
    log = directory.create_log(ORDERS, TOPIC_ID, CONFIG).log
    append(log, *[b"x" * 100] * 6)
    log.flush()
    directory.write_checkpoints()
    again = machine.reboot()
    assert again.last_shutdown is None
    checked = again.logs[ORDERS].log.report.segments_checked
    assert checked == [again.logs[ORDERS].log.segments[-1].base_offset]
    assert len(values(again.logs[ORDERS].log)) == 6


def test_empty_clean_shutdown_marker_of_an_older_broker_is_valid() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"1")
    directory.close()
    machine.disk.open(f"/d1/{MARKER}", OpenMode.CREATE).truncate(0)
    again = machine.start()
    assert again.last_shutdown is not None
    assert again.last_shutdown.broker_epoch == -1
    assert again.logs[ORDERS].log.report.segments_checked == []


def test_corrupt_recovery_checkpoint_makes_a_clean_stop_unclean() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"1")
    directory.close()
    machine.disk.rot("/d1/recovery-point-offset-checkpoint", 0)
    again = machine.start()
    assert machine.report.corrupt_checkpoints == ["recovery-point-offset-checkpoint"]
    assert again.logs[ORDERS].log.report.segments_checked == [0]
    assert values(again.logs[ORDERS].log) == [b"1"]


def test_start_that_opens_no_log_leaves_the_marker_as_it_was() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"1")
    machine.disk.kill()
    machine.disk.restart()
    LogDirectory.open(machine.ports, "/d1", node_id=NODE, cluster_id=CLUSTER).close()
    assert machine.start().last_shutdown is None


def test_log_with_a_corrupt_topic_id_is_opened_and_gets_the_one_it_is_claimed_with() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"a")
    directory.close()
    machine.disk.rot("/d1/orders-0/partition.metadata", 0)
    again = machine.start()
    assert machine.report.failed == {}
    (reason,) = machine.report.corrupt_topic_ids
    assert "/d1/orders-0/partition.metadata" in reason
    hosted = again.claim_log(ORDERS, TOPIC_ID)
    assert (hosted.topic_id, hosted.log.high_watermark) == (TOPIC_ID, 1)
    assert machine.reboot().logs[ORDERS].topic_id == TOPIC_ID
    assert machine.report.corrupt_topic_ids == []


def test_no_marker_is_left_while_a_log_could_not_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    directory = machine.start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    directory.create_log(TopicPartition("other", 0), TOPIC_ID, CONFIG)
    directory.close()
    opened = Log.open

    def open_others(disk: object, path: str, *rest: object, **settings: object) -> Log:
        if path.endswith("orders-0"):
            raise CorruptBatch("no")
        return opened(disk, path, *rest, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(Log, "open", open_others)
    again = machine.start()
    assert machine.report.failed == {"orders-0": "no"}
    assert (list(again.logs), again.is_failed) == ([TopicPartition("other", 0)], False)
    again.close()
    assert not machine.disk.exists(f"/d1/{MARKER}")


def test_disk_error_on_open_fails_only_that_directory() -> None:
    machine = Machine()
    directory = machine.start()
    for topic in ("a", "b", "c"):
        directory.create_log(TopicPartition(topic, 0), TOPIC_ID, CONFIG)
    directory.close()
    machine.disk.fail("list", path_contains="/b-0")
    again = machine.start()
    assert [partition.topic for partition in again.logs] == ["a", "c"]
    assert list(machine.report.failed) == ["b-0"]
    assert again.is_failed
    with pytest.raises(StorageFailed):
        again.create_log(ORDERS, TOPIC_ID, CONFIG)
    with pytest.raises(StorageFailed):
        again.close()
    assert not machine.disk.exists(f"/d1/{MARKER}")


def test_failed_log_leaves_no_marker() -> None:
    machine = Machine()
    directory = machine.start()
    log = directory.create_log(ORDERS, TOPIC_ID, CONFIG).log
    append(log, b"1")
    machine.disk.fail("sync", path_contains=".log")
    with pytest.raises(StorageFailed):
        log.flush()
    with pytest.raises(StorageFailed):
        directory.close()
    assert not machine.disk.exists(f"/d1/{MARKER}")
    assert machine.start().last_shutdown is None


def test_directory_failure_is_reported_once() -> None:
    directory = Machine().start()
    assert [directory.fail("disk"), directory.fail("again")] == [True, False]
    assert directory.failure == "disk"


# -- what is in a directory ------------------------------------------------------


def test_unrecognized_directories_are_left_alone_and_reported() -> None:
    machine = Machine()
    for name in ("lost+found", "__cluster_metadata-0", "a-0.00ff-stray", "notes"):
        machine.disk.make_dirs(f"/d1/{name}")
    directory = machine.start()
    assert machine.report.unrecognized == ["__cluster_metadata-0", "lost+found", "notes"]
    assert machine.report.strays == ["a-0.00ff-stray"]
    assert directory.logs == {}


def test_future_log_is_kept_apart() -> None:
    machine = Machine()
    directory = machine.start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG, DirectoryKind.FUTURE)
    directory.close()
    again = machine.start()
    assert (list(again.logs), list(again.future_logs)) == ([], [ORDERS])


def test_deleted_log_is_removed_at_once_and_its_files_later() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"1")
    directory.delete_log(ORDERS)
    assert directory.logs == {}
    assert [name for name in machine.disk.list("/d1") if name.endswith("-delete")]
    again = machine.reboot()
    assert again.logs == {}
    assert again.purge_deleted() == 1
    assert not [name for name in machine.disk.list("/d1") if "orders" in name]


def test_stray_log_is_renamed_with_its_data() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, b"1")
    directory.mark_stray(ORDERS)
    again = machine.reboot()
    (stray,) = machine.report.strays
    assert "00000000000000000000.log" in machine.disk.list(f"/d1/{stray}")
    assert again.logs == {}


def test_log_of_an_older_topic_with_the_same_name_is_rejected() -> None:
    directory = Machine().start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    assert directory.claim_log(ORDERS, TOPIC_ID).topic_id == TOPIC_ID
    with pytest.raises(InconsistentTopicId):
        directory.claim_log(ORDERS, Uuid(bytes(15) + b"\x7f"))


def test_log_without_a_topic_id_gets_the_one_it_is_claimed_with() -> None:
    machine = Machine()
    directory = machine.start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    directory.close()
    machine.disk.remove("/d1/orders-0/partition.metadata")
    machine.start().claim_log(ORDERS, TOPIC_ID)
    assert machine.reboot().logs[ORDERS].topic_id == TOPIC_ID


# -- a recreated log ------------------------------------------------------


def recreated(machine: Machine) -> LogDirectory:
    """Return a directory whose log was checkpointed, deleted, and created again."""
    directory = machine.start()
    old = directory.create_log(ORDERS, TOPIC_ID, CONFIG).log
    append(old, *[b"old" * 30] * 6)
    old.flush()
    old.advance_log_start(Offset(5))
    directory.write_checkpoints()
    directory.delete_log(ORDERS)
    append(directory.create_log(ORDERS, OTHER_ID, CONFIG).log, b"1", b"2", b"3")
    return directory


def test_recreated_log_inherits_no_checkpoint() -> None:
    machine = Machine()
    recreated(machine).logs[ORDERS].log.flush()
    log = machine.reboot().logs[ORDERS].log
    assert log.report.segments_checked == [0], "nothing of it is known to be durable"
    assert log.log_start_offset == 0
    assert values(log) == [b"1", b"2", b"3"]


def test_checkpoint_that_a_thread_writes_late_does_not_bring_a_deleted_log_back() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, *[b"old" * 30] * 6)
    directory.logs[ORDERS].log.flush()
    directory.logs[ORDERS].log.advance_log_start(Offset(5))
    late = directory.checkpoint_writes()
    directory.delete_log(ORDERS)
    append(directory.create_log(ORDERS, OTHER_ID, CONFIG).log, b"1", b"2", b"3")
    directory.logs[ORDERS].log.flush()
    for write in late:
        write.sync()
    log = machine.reboot().logs[ORDERS].log
    assert (log.log_start_offset, values(log)) == (0, [b"1", b"2", b"3"])
    assert log.report.segments_checked == [0]


def test_log_deleted_before_the_start_leaves_no_checkpoint_to_its_successor() -> None:
    machine = Machine()
    directory = machine.start()
    append(directory.create_log(ORDERS, TOPIC_ID, CONFIG).log, *[b"old" * 30] * 6)
    directory.logs[ORDERS].log.flush()
    directory.logs[ORDERS].log.advance_log_start(Offset(5))
    directory.write_checkpoints()
    directory.delete_log(ORDERS)
    again = machine.reboot()
    append(again.create_log(ORDERS, OTHER_ID, CONFIG).log, b"1")
    again.logs[ORDERS].log.flush()
    log = machine.reboot().logs[ORDERS].log
    assert (log.log_start_offset, values(log)) == (0, [b"1"])


def test_new_name_costs_no_checkpoint() -> None:
    machine = Machine()
    directory = machine.start()
    directory.write_checkpoints()
    before = machine.disk.read("/d1/recovery-point-offset-checkpoint")
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    assert machine.disk.read("/d1/recovery-point-offset-checkpoint") == before


def test_number_of_removed_names_is_bounded() -> None:
    machine = Machine()
    directory = machine.start()
    for index in range(REMOVED_MAX + 2):
        name = TopicPartition("t", index)
        directory.create_log(name, TOPIC_ID, CONFIG)
        directory.delete_log(name)
        assert len(directory.gone) <= REMOVED_MAX


# -- a crash at every disk operation -----------------------------------------------


def life(machine: Machine) -> None:
    """Start, append, flush, checkpoint, append more, stop; records what must survive a crash."""
    directory = machine.start()
    hosted = directory.logs.get(ORDERS) or directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    found = values(hosted.log)
    batch = [b"%d" % at * 60 for at in range(4)]
    append(hosted.log, *batch)
    hosted.log.flush()
    machine.flushed = [*found, *batch]
    directory.write_checkpoints()
    append(hosted.log, b"late1", b"late2")
    directory.close(broker_epoch=1)
    machine.flushed += [b"late1", b"late2"]


@pytest.mark.parametrize("is_second_life", [False, True])
def test_crash_anywhere_between_start_and_stop_keeps_what_was_flushed(
    is_second_life: bool,
) -> None:
    for k in range(1, 400):
        machine = Machine(seed=k)
        if is_second_life:
            life(machine)
        machine.disk.crash_at(k)
        try:
            life(machine)
            is_done = True
        except SimCrash:
            is_done = False
        flushed = machine.flushed
        machine.disk.crash()
        machine.disk.restart()
        is_marked = machine.disk.exists(f"/d1/{MARKER}")
        again = machine.start()
        assert machine.report.failed == {}
        found = values(again.logs[ORDERS].log) if ORDERS in again.logs else []
        assert found[: len(flushed)] == flushed
        assert is_marked or not is_done
        if is_done:
            assert found == flushed
        append((again.logs.get(ORDERS) or again.create_log(ORDERS, TOPIC_ID, CONFIG)).log, b"on")
        again.close()
        if is_done:
            break
    assert is_done


def test_truncated_future_log_has_no_loss() -> None:
    machine = Machine()
    directory = machine.start()
    future = directory.create_future(ORDERS, TOPIC_ID, CONFIG)
    append(future.log, b"a", b"b", b"c")
    path = future.log.segments[-1].path
    directory.close()
    file = machine.disk.open(path, OpenMode.READ_WRITE)
    file.truncate(machine.disk.size(path) - 1)
    file.close()

    again = machine.start()

    (loss,) = again.future_logs[ORDERS].log.report.losses
    assert not loss.is_known
    assert loss.kept == ()


# -- new logs and power failures --------------------------------------------------


def test_new_log_is_created_without_a_sync() -> None:
    machine = Machine()
    directory = machine.start()
    machine.disk.fail("sync", times=1000)
    machine.disk.fail("sync_dir", times=1000)
    log = directory.create_log(ORDERS, TOPIC_ID, CONFIG).log
    log.start_epoch(LeaderEpoch(0))
    assert log.log_end_offset == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("restart", ["none", "clean", "killed"])
def test_synced_records_of_a_new_log_survive_with_their_topic_id(seed: int, restart: str) -> None:
    machine = Machine(seed=seed)
    directory = machine.start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    if restart == "clean":
        directory.close()
    elif restart == "killed":
        machine.disk.kill()
        machine.disk.restart()
    if restart != "none":
        directory = machine.start()
    log = directory.logs[ORDERS].log
    append(log, b"kept")
    log.flush()
    found = machine.reboot().logs[ORDERS]
    assert (found.topic_id, values(found.log)) == (TOPIC_ID, [b"kept"])


@pytest.mark.parametrize("seed", range(20))
def test_new_log_without_records_is_usable_after_a_power_failure(seed: int) -> None:
    machine = Machine(seed=seed)
    directory = machine.start()
    directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    directory = machine.reboot()
    if ORDERS in directory.logs:
        hosted = directory.claim_log(ORDERS, TOPIC_ID)
    else:
        hosted = directory.create_log(ORDERS, TOPIC_ID, CONFIG)
    append(hosted.log, b"first")
    hosted.log.flush()
    directory.close()
    found = machine.start().logs[ORDERS]
    assert (found.topic_id, values(found.log)) == (TOPIC_ID, [b"first"])
