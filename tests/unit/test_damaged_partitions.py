"""What readers of a damaged batch receive, and when stored batches are checked."""

from collections.abc import Callable

import pytest
from partition_fixtures import Machine, registration
from replicas_fixtures import Broker, image_of, partition_of
from test_replication_fetching import Controller, run_until, took

from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.partition_log import PartitionLog
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.metadata.topics import DIRECTORY_LOST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, Fault
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.replication.host import HostPorts
from ottla.replication.maintenance.directory_reports import DirectoryReports
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import ReadRequest
from ottla.replication.repair.repair_loop import ReplicaRepair
from ottla.replication.repair.scrub_loop import SUSPECT_PAUSE_MS, LogScrubber, ScrubSettings
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.batch_check import DamagedRange


def append(partition: Partition, count: int = 3) -> None:
    for _ in range(count):
        batch = build_batch([Record(Offset(0), Millis(1), b"k", b"v" * 50)])
        partition.append(batch, now=Millis(1))


def led(machine: Machine, *replicas: int, isr: tuple[int, ...] | None = None) -> Partition:
    partition = machine.host()
    partition.apply(registration(replicas=(0, *replicas), isr=isr))
    append(partition)
    return partition


def damage_second_batch(partition: Partition) -> None:
    segment = partition.log.segments[0]
    size = segment.size // 3
    damage = DamagedRange(size, 2 * size, Offset(1), Offset(2), "flipped")
    partition.log.damaged_ranges.add(segment, damage)


def refusal(partition: Partition, offset: int) -> ErrorCode:
    with pytest.raises(Fault) as caught:
        partition.read(ReadRequest(Offset(offset), 1))
    return caught.value.code


def test_read_of_damage_on_the_only_replica_returns_corrupt_message() -> None:
    machine = Machine()
    partition = led(machine)
    damage_second_batch(partition)
    assert refusal(partition, 1) is ErrorCode.CORRUPT_MESSAGE
    assert machine.fake_host.suspected == [("orders-0", 1)]
    assert partition.read(ReadRequest(Offset(2), 1)).slice.length


def test_read_of_damage_with_in_sync_followers_is_retriable() -> None:
    machine = Machine()
    partition = led(machine, 1, 2)
    partition.log.set_high_watermark(Offset(3))
    damage_second_batch(partition)
    assert refusal(partition, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline is None, "the directory stays online"


def test_follower_that_asks_twice_for_an_offset_makes_its_leader_check_it() -> None:
    machine = Machine()
    partition = led(machine, 1)
    for offset in (0, 1, 1, 3, 3):
        partition.follower_fetched(1, Offset(offset), log_start=Offset(0))
    assert machine.fake_host.suspected == [("orders-0", 1)], "at the end of the log it just waits"


def test_coordinator_that_cannot_load_has_its_log_checked() -> None:
    machine = Machine()
    partition = led(machine, 1)
    partition.log.segments[0].file.pwrite(b"\xff", 80)
    settings = ShardSettings(machine.clock, decode_group_record)
    shard = Shard(
        "t-0", LeaderEpoch(0), PartitionLog(partition), GroupMachine(GroupSettings()), settings
    )
    with pytest.raises(Fault, match="wrong CRC") as caught:
        shard.load_step()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "another replica can take over"
    assert machine.fake_host.suspected == [("orders-0", 0)]


def test_coordinator_that_cannot_read_a_known_damage_has_it_checked() -> None:
    machine = Machine()
    partition = led(machine)
    damage_second_batch(partition)
    with pytest.raises(CorruptBatch):
        PartitionLog(partition).read(Offset(1), 1)
    assert machine.fake_host.suspected == [("orders-0", 1)]


def lost_broker() -> tuple[Broker, DirectoryReports, Controller]:
    broker = Broker().start()
    controller = Controller(took, took, took)
    reports = DirectoryReports(broker.host, controller)
    return broker, reports, controller


def test_lost_replica_is_reported_as_lost_until_it_is_placed_again() -> None:
    broker, reports, controller = lost_broker()
    broker.publish(image_of({"orders": (1, {0: partition_of(1, 2)})}))
    partition = broker.partitions.get("orders", 0)
    assert partition is not None
    reports.lost(partition)

    def place_once_lost() -> bool:
        if len(controller.requests) == 1 and not reports._pending:
            reports.placed(partition)
        return len(controller.requests) == 2 and not reports._pending

    run_until(reports, place_once_lost)
    replies = [request.directories[0].id for request in controller.requests]
    assert replies == [DIRECTORY_LOST, partition.directory.directory_id]


def test_replica_found_lost_at_the_start_is_checked_before_it_is_placed() -> None:
    broker = Broker().start()
    checks: list[tuple[Partition, Callable[[], None]]] = []
    broker.holds_back = ReplicaRepair(broker.host, None).holds_back
    broker.host.log_events.on_check(lambda partition, done: checks.append((partition, done)))
    lost = partition_of(2, 1, directories=(DIRECTORY_LOST, DIRECTORY_LOST))
    broker.publish(image_of({"orders": (1, {0: lost})}))
    partition = broker.partitions.get("orders", 0)
    assert [checked for checked, _ in checks] == [partition]
    assert broker.reported == []
    checks[0][1]()
    assert broker.reported == [f"orders-0 {partition.directory.path}"]


def test_damaged_replica_is_not_placed_by_a_new_image() -> None:
    broker = Broker().start()
    repairs = ReplicaRepair(broker.host, None)
    broker.holds_back = repairs.holds_back
    broker.publish(image_of({"orders": (1, {0: partition_of(2, 1)})}))
    partition = broker.partitions.get("orders", 0)
    broker.reported.clear()
    segment = partition.log.segments[0]
    repairs.found(partition, segment, DamagedRange(0, 10, Offset(0), Offset(1), "flipped"))
    repairs._repairs[partition].is_out = True
    broker.host.log_events.placed(partition)
    assert broker.reported == []
    assert repairs.damaged == [partition]
    assert repairs.counts.found == 1


class Controlling:
    """Removes a replica that is reported as lost from the ISR at once."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.events: list[str] = []

    def lost(self, partition: Partition) -> None:
        self.events.append("lost")
        out = partition_of(1, 2, isr=(2,), leader=2, epoch=1, partition_epoch=1)
        self.broker.publish(image_of({"orders": (1, {0: out})}))

    def placed(self, partition: Partition) -> None:
        self.events.append("placed")

    async def dial(self, broker: int) -> None:
        self.events.append("dial")
        raise ConnectionRefusedError(str(broker))


def test_damaged_leader_leaves_the_isr_before_it_is_repaired() -> None:
    broker = Broker().start()
    broker.publish(image_of({"orders": (1, {0: partition_of(1, 2)})}))
    partition = broker.partitions.get("orders", 0)
    append(partition)
    controlling = Controlling(broker)
    broker.host.log_events.on_lost(controlling.lost)
    broker.host.log_events.on_usable(controlling.placed)
    repairs = ReplicaRepair(broker.host, controlling.dial)
    damage = DamagedRange(0, 10, Offset(0), Offset(1), "flipped")
    repairs.found(partition, partition.log.segments[0], damage)
    run_until(repairs, lambda: repairs.counts.started > 0)
    assert controlling.events[:1] == ["lost"]
    assert not partition.is_leader


def test_damage_that_was_truncated_ends_as_a_repair() -> None:
    broker = Broker().start()
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    partition = broker.partitions.get("orders", 0)
    append(partition)
    repaired: list[Partition] = []
    broker.host.log_events.on_repaired(repaired.append)
    repairs = ReplicaRepair(broker.host, None)
    damage = DamagedRange(10, 20, Offset(2), Offset(3), "flipped")
    repairs.found(partition, partition.log.segments[0], damage)
    partition.log.truncate_to(Offset(1))
    run_until(repairs, lambda: not repairs._repairs)
    assert repaired == [partition]


def test_suspected_partition_is_checked_at_a_limited_rate() -> None:
    broker = Broker().start()
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    partition = broker.partitions.get("orders", 0)
    scrubbing = LogScrubber(broker.host, ScrubSettings(10**9, 1e9), lambda *found: None)
    scrubbing.suspect(partition, Offset(0))
    assert scrubbing._suspects.pop(partition) == 0
    scrubbing.suspect(partition, Offset(0))
    assert not scrubbing._suspects
    broker.clock.pass_ms(SUSPECT_PAUSE_MS)
    scrubbing.suspect(partition, Offset(0))
    assert scrubbing._suspects


def rotten() -> tuple[Broker, Partition]:
    """A log of three segments, of which the first two are damaged."""
    broker = Broker().start()
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    partition = broker.partitions.get("orders", 0)
    assert partition is not None
    for _ in range(2):
        append(partition)
        partition.log.roll()
    append(partition)
    for segment in partition.log.segments[:2]:
        segment.file.pwrite(b"\xff", 80)
    return broker, partition


def test_pass_finds_damage_in_old_segments() -> None:
    broker, partition = rotten()
    found: list[tuple[Partition, Segment, DamagedRange]] = []
    scrubbing = LogScrubber(broker.host, ScrubSettings(0, 1e9), lambda *each: found.append(each))
    run_until(scrubbing, lambda: scrubbing.passes > 0)
    assert {each[1] for each in found} == set(partition.log.segments[:2])
    assert [each[2].offset for each in found[:2]] == [0, 3]
    assert scrubbing.bytes_read > 0


def test_failed_read_checks_the_whole_log_and_calls_every_callback() -> None:
    broker, partition = rotten()
    found: list[Segment] = []
    done: list[str] = []
    scrubbing = LogScrubber(
        broker.host, ScrubSettings(10**9, 1e9), lambda *each: found.append(each[1])
    )
    scrubbing.verify(partition, lambda: done.append("repair"))
    broker.host.suspect_log(partition.name)
    run_until(scrubbing, lambda: bool(done))
    assert done == ["repair"]
    assert found == list(partition.log.segments[:2])


def test_segments_deleted_meanwhile_are_not_damaged() -> None:
    broker, partition = rotten()
    found: list[Segment] = []

    class Deleting:
        """Deletes the oldest segment while a worker reads it."""

        async def run(self, work):
            result = work()
            if len(partition.log.segments) == 3:
                partition.log.delete_segments([partition.log.segments[0].base_offset])
            return result

    ports = broker.host.ports
    broker.host.ports = HostPorts(ports.clock, ports.disk, ports.random, None, Deleting())
    scrubbing = LogScrubber(broker.host, ScrubSettings(0, 1e9), lambda *each: found.append(each[1]))
    run_until(scrubbing, lambda: scrubbing.passes > 1)
    assert {each.base_offset for each in found} == {3}


def test_segment_that_grows_and_is_sealed_while_it_is_read_has_no_hole() -> None:
    broker = Broker().start()
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    partition = broker.partitions.get("orders", 0)
    assert partition is not None
    append(partition)
    missing: list[object] = []

    class Growing:
        """Appends to the active segment while a worker reads it, and seals it."""

        async def run(self, work):
            result = work()
            if len(partition.log.segments) == 1:
                append(partition)
                partition.log.roll()
                partition.log.flush()
            return result

    ports = broker.host.ports
    broker.host.ports = HostPorts(ports.clock, ports.disk, ports.random, None, Growing())
    settings = ScrubSettings(0, 1e9)
    scrubbing = LogScrubber(broker.host, settings, lambda *_: None, lambda *it: missing.append(it))
    run_until(scrubbing, lambda: scrubbing.passes > 1)
    assert len(partition.log.segments) == 2
    assert not missing
