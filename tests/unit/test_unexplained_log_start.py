"""Which segments a follower deletes when its leader's log start is later than its own."""

import logging

import pytest
from partition_fixtures import NOW, Machine, append, bytes_of, registration, values_in

from ottla.config.generated import TopicConfig
from ottla.protocol.types import Offset
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import Range
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import Isolation, ReadRequest
from ottla.storage.log.inventory import FILE_NAME
from ottla.storage.log.kept_until import FILE_NAME as KEPT_UNTIL
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from ottla.storage.log.log_maintenance import delete_old_segments

VALUE = b"x" * 600  # one batch per segment of 1 kB
COUNT = 6
DELAY_MS = 3_600_000
DAY_MS = 86_400_000


class Replica:
    """A follower with six replicated records, by default in a segment each."""

    def __init__(self, segments: int = COUNT, **log_config: object) -> None:
        leader, self.machine = Machine(2, seed=2), Machine(1)
        theirs = leader.host()
        settings = LogConfig(**{"segment_bytes": 1000, "retention_ms": 7 * DAY_MS, **log_config})
        self.partition: Partition = self.machine.host(config=TopicConfig(), log_config=settings)
        for replica in (theirs, self.partition):
            replica.apply(registration(leader=2, replicas=(2, 1)))
        self.follower = Follower(self.machine.fake_host, self.partition)
        for _ in range(COUNT):
            start = theirs.log.log_end_offset
            append(theirs, VALUE)
            batch = theirs.read(ReadRequest(start, 1 << 20, isolation=Isolation.LOG_END))
            self.follower.append(bytes_of(batch.slice), NOW)
        self.log = self.partition.log
        self.log.set_high_watermark(Offset(COUNT))
        assert len(self.log.segments) == segments

    def next_leader(self) -> None:
        """Follow in the next leader epoch."""
        self.partition.apply(registration(leader=2, replicas=(2, 1), epoch=1, partition_epoch=1))
        self.follower = Follower(self.machine.fake_host, self.partition)

    def learn(self, log_start: int) -> None:
        self.follower.learn(Offset(COUNT), Offset(log_start))

    def remaining(self) -> int:
        """Run retention, and return the number of segments."""
        delete_old_segments(self.log, self.machine.clock.now())
        return len(self.log.segments)


def test_log_start_that_advances_in_one_leader_epoch_deletes_at_once() -> None:
    """Only retention and DeleteRecords move the start of a running leader."""
    replica = Replica()
    replica.learn(0)
    replica.learn(3)
    assert replica.remaining() == COUNT - 3
    assert not replica.log.is_keeping_segments


def test_leader_that_begins_with_a_later_start_deletes_after_the_delay() -> None:
    replica = Replica()
    replica.learn(0)
    replica.next_leader()
    replica.learn(3)
    # Clients and the leader see the new start: DeleteRecords waits for it.
    assert replica.log.log_start_offset == 3
    assert replica.remaining() == COUNT
    assert replica.log.is_keeping_segments
    replica.machine.clock.pass_ms(DELAY_MS - 1)
    assert replica.remaining() == COUNT
    replica.machine.clock.pass_ms(1)
    assert replica.remaining() == COUNT - 3
    assert not replica.log.is_keeping_segments
    assert values_in(replica.log) == [VALUE] * (COUNT - 3)


def test_answer_without_a_log_start_is_no_sign_of_a_sound_leader() -> None:
    replica = Replica()
    replica.learn(-1)
    replica.learn(3)
    assert replica.remaining() == COUNT


def test_later_start_that_time_explains_deletes_at_once() -> None:
    replica = Replica()
    replica.machine.clock.pass_ms(7 * DAY_MS - 30_000)  # the leader's clock may be ahead
    replica.learn(3)
    assert not replica.log.is_keeping_segments
    assert replica.remaining() == COUNT - 3


def test_later_start_that_size_explains_deletes_at_once() -> None:
    replica = Replica(retention_bytes=2500)
    replica.learn(2)
    assert not replica.log.is_keeping_segments
    assert replica.remaining() <= COUNT - 2


def test_later_start_that_size_explains_in_part_is_kept() -> None:
    replica = Replica(retention_bytes=2500)
    replica.learn(COUNT - 1)
    assert replica.log.is_keeping_segments


def test_compacted_topic_explains_no_start() -> None:
    replica = Replica(is_deleted=False, is_compacted=True)
    replica.machine.clock.pass_ms(30 * DAY_MS)
    replica.learn(3)
    assert replica.remaining() == COUNT


def test_start_inside_the_only_segment_keeps_nothing() -> None:
    replica = Replica(segments=1, segment_bytes=1 << 20)
    replica.learn(3)
    assert replica.log.log_start_offset == 3
    assert not replica.log.is_keeping_segments


def test_own_retention_deletes_kept_segments_when_they_expire() -> None:
    replica = Replica(retention_ms=600_000)
    replica.learn(3)
    assert replica.remaining() == COUNT
    replica.machine.clock.pass_ms(600_001)
    assert replica.remaining() < COUNT


def test_kept_segments_are_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            replica.learn(3)
            replica.remaining()
    (line,) = (record for record in caplog.records if "not explained" in record.getMessage())
    assert "orders-0" in line.getMessage()
    assert "leader_log_start=3" in line.getMessage()


def test_delay_of_zero_follows_the_leader_at_once() -> None:
    replica = Replica()
    replica.machine.fake_host.unexplained_deletion_delay_ms = 0
    replica.learn(3)
    assert replica.remaining() == COUNT - 3


@pytest.mark.parametrize("segments", [1, COUNT])
def test_files_of_a_log_that_restarts_unexplained_are_kept_for_the_delay(segments: int) -> None:
    replica = Replica(segments, segment_bytes=1000 if segments > 1 else 1 << 20)
    replica.follower.reset(Range(Offset(99_999), Offset(99_999)))
    assert replica.log.log_end_offset == 99_999
    assert replica.log.is_keeping_segments
    replica.machine.clock.pass_ms(DELAY_MS - 1)
    assert replica.log.purge_deleted() == 0
    replica.machine.clock.pass_ms(1)
    assert replica.log.purge_deleted() == segments


def test_files_of_a_log_that_restarts_after_retention_are_removed_soon() -> None:
    replica = Replica()
    replica.machine.clock.pass_ms(8 * DAY_MS)
    replica.follower.reset(Range(Offset(99_999), Offset(99_999)))
    replica.machine.clock.pass_ms(replica.log.config.file_delete_delay_ms)
    assert replica.log.purge_deleted() == COUNT


def restarted(replica: Replica, *, down_ms: int = 0, is_crash: bool = False) -> Log:
    """Open the log again, as a start of the node does."""
    machine = replica.machine
    if is_crash:
        replica.log._segments.close()
    else:
        replica.log.close()
    machine.clock.pass_ms(down_ms)
    log = Log.open(
        machine.disk,
        replica.log.directory,
        replica.log.config,
        clock=machine.clock,
        checkpoint=LogCheckpoint(
            is_clean=not is_crash, keeps_inventory=True, high_watermark=Offset(COUNT)
        ),
    )
    log.set_high_watermark(min(Offset(COUNT), log.log_end_offset))
    log.resume_keeping(machine.fake_host.unexplained_deletion_delay_ms)
    replica.log = log
    return log


@pytest.mark.parametrize("is_crash", [False, True])
def test_delay_goes_on_after_restarts(is_crash: bool) -> None:
    replica = Replica()
    replica.learn(3)
    third = DELAY_MS // 3
    for _ in range(3):
        restarted(replica, is_crash=is_crash)
        delete_old_segments(replica.log, replica.machine.clock.now())
        assert replica.log.is_keeping_segments
        assert len(replica.log.segments) >= COUNT
        replica.machine.clock.pass_ms(third)
    restarted(replica, is_crash=is_crash)
    assert not replica.log.is_keeping_segments
    assert not replica.machine.disk.exists(f"{replica.log.directory}/{KEPT_UNTIL}")


def test_delay_that_ends_while_the_node_is_down_is_over() -> None:
    replica = Replica()
    replica.learn(3)
    log = restarted(replica, down_ms=DELAY_MS)
    assert not log.is_keeping_segments
    assert replica.remaining() < COUNT


def test_files_of_a_log_that_restarts_unexplained_survive_restarts_of_the_node() -> None:
    replica = Replica()
    replica.follower.reset(Range(Offset(99_999), Offset(99_999)))
    replica.machine.clock.pass_ms(1000)
    log = restarted(replica)
    assert log.is_keeping_segments
    names = replica.machine.disk.list(log.directory)
    assert sum(name.endswith(".log.deleted") for name in names) == COUNT
    replica.machine.clock.pass_ms(DELAY_MS - 1001)
    assert log.purge_deleted() == 0
    replica.machine.clock.pass_ms(1)
    assert log.purge_deleted() == COUNT


def test_shorter_delay_after_a_restart_holds() -> None:
    replica = Replica()
    replica.learn(3)
    replica.machine.fake_host.unexplained_deletion_delay_ms = 0
    restarted(replica)
    assert not replica.log.is_keeping_segments


@pytest.mark.parametrize("data", [b"", b"0\n1\n17\n", b"\xff" * 40])
def test_damaged_time_begins_the_delay_again(data: bytes) -> None:
    replica = Replica()
    replica.learn(3)
    replica.machine.disk.damage(f"{replica.log.directory}/{KEPT_UNTIL}", data)
    log = restarted(replica, down_ms=1000)
    assert log.is_keeping_segments
    replica.machine.clock.pass_ms(DELAY_MS - 1)
    assert log.is_keeping_segments


def test_operator_can_bring_kept_segments_back() -> None:
    """The steps of docs/recovery.md: without the inventory, the checkpoint decides."""
    replica = Replica()
    replica.learn(3)
    replica.log.close()
    disk = replica.machine.disk
    disk.remove(f"{replica.log.directory}/{FILE_NAME}")
    checkpoint = LogCheckpoint(is_clean=True, keeps_inventory=True)
    reopened = Log.open(
        disk,
        replica.log.directory,
        replica.log.config,
        clock=replica.machine.clock,
        checkpoint=checkpoint,
    )
    assert reopened.log_start_offset == 0
    assert values_in(reopened) == [VALUE] * COUNT
