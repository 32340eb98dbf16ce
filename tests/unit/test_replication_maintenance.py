"""Periodic maintenance of logs, and what a stop and a crash leave."""

import asyncio
import errno
from collections.abc import Sequence

import pytest
from partition_fixtures import append, batch_of, values_in
from replicas_fixtures import TOPIC, Broker, clean_once, image_of, partition_of
from tests.patience import SECONDS_MAX

from ottla.config.generated import BrokerConfig
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition
from ottla.replication.log_directories import LogDirectories
from ottla.replication.maintenance.cleaner_loop import LogCleanerService
from ottla.replication.maintenance.disk_usage import DiskUsage
from ottla.replication.maintenance.maintenance_loop import (
    LogMaintenance,
    PeriodicTask,
    maintenance_tasks,
)
from ottla.runtime.ports import Syncable
from ottla.storage.directory.checkpoints import HIGH_WATERMARK, RECOVERY_POINT, read_offsets
from ottla.storage.directory.log_dir import LogDirectory

NAME = TopicPartition("orders", 0)
SMALL = {"internal.segment.bytes": "200"}


def one(**settings: str):
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return image_of(
        {"orders": (1, {0: partition_of(1)})}, configs={(TOPIC, "orders"): {**SMALL, **given}}
    )


def hosted(**settings: str):
    broker = Broker(paths=("/d1",)).start(one(**settings))
    return broker, broker.partitions.get("orders", 0), LogMaintenance(broker.host, broker.replicas)


def config_of(**settings) -> BrokerConfig:
    return BrokerConfig(
        node_id=1, process_roles=("broker",), controller_listener_names=("C",), **settings
    )


def fill(partition, count: int = 6) -> None:
    for number in range(count):
        append(partition, b"%064d" % number)


def test_old_segments_are_deleted_by_time_and_their_files_later() -> None:
    broker, partition, maintenance = hosted(retention_ms="1000")
    fill(partition)
    assert len(partition.log.segments) > 2
    asyncio.run(maintenance.delete_old())
    assert partition.log.log_start_offset == 0
    broker.clock.pass_ms(2000)
    asyncio.run(maintenance.delete_old())
    assert partition.log.log_start_offset == 6
    files = broker.disk.list("/d1/orders-0")
    assert any(name.endswith(".deleted") for name in files)
    broker.clock.pass_ms(60_000)
    asyncio.run(maintenance.remove_files())
    assert not any(name.endswith(".deleted") for name in broker.disk.list("/d1/orders-0"))


def test_clock_jump_deletes_nothing() -> None:
    broker, partition, maintenance = hosted(retention_ms="1000")
    fill(partition)
    broker.clock.wall += 10 * 365 * 86_400_000
    asyncio.run(maintenance.delete_old())
    assert partition.log.log_start_offset == 0


def test_waiting_deletion_is_completed_by_retention() -> None:
    broker, partition, maintenance = hosted(retention_ms="1000")
    partition.apply(partition_of(1, 2, epoch=0, partition_epoch=1, isr=(1,)))
    fill(partition)
    partition.follower_fetched(2, 6, log_start=6)
    replies = []
    partition.when_deleted(6, replies.append)
    broker.clock.pass_ms(2000)
    asyncio.run(maintenance.delete_old())
    assert replies == [None]


def test_log_that_rolled_is_flushed_and_checkpointed() -> None:
    broker, partition, maintenance = hosted()
    fill(partition)
    assert partition.log.recovery_point == 0

    async def work() -> None:
        await maintenance.flush_due()
        await maintenance.write_checkpoints()

    asyncio.run(work())
    assert partition.log.recovery_point == 6
    assert read_offsets(broker.disk, f"/d1/{RECOVERY_POINT}") == {NAME: 6}
    assert read_offsets(broker.disk, f"/d1/{HIGH_WATERMARK}") == {NAME: 6}


def test_log_that_rolled_before_a_crash_is_flushed() -> None:
    broker, partition, _ = hosted()
    fill(partition)
    broker.disk.kill()
    broker.disk.restart()
    again = broker.again(broker.image)
    log = again.partitions.get("orders", 0).log
    assert log.recovery_point == 0
    asyncio.run(LogMaintenance(again.host, again.replicas).flush_due())
    assert log.recovery_point == 6


def test_log_is_flushed_after_its_time_only() -> None:
    broker, partition, maintenance = hosted(flush_ms="5000")
    append(partition, b"a")
    asyncio.run(maintenance.flush_due())
    assert partition.log.recovery_point == 0
    broker.clock.pass_ms(5000)
    asyncio.run(maintenance.flush_due())
    assert partition.log.recovery_point == 1
    append(partition, b"b")
    broker.clock.pass_ms(4999)
    asyncio.run(maintenance.flush_due())
    assert partition.log.recovery_point == 1


def test_flush_messages_makes_every_append_durable() -> None:
    broker, partition, _ = hosted(flush_messages="1")
    append(partition, b"a")
    assert partition.log.recovery_point == 1
    broker.disk.crash()
    broker.disk.restart()
    again = broker.again(one())
    assert values_in(again.partitions.get("orders", 0).log) == [b"a"]


def test_flush_that_fails_takes_the_directory_offline_without_a_crash() -> None:
    broker, partition, maintenance = hosted()
    fill(partition)
    broker.disk.fail("sync", error=errno.EIO, path_contains="/d1/orders-0")
    asyncio.run(maintenance.flush_due())
    assert partition.offline is not None
    assert partition.log.recovery_point == 0
    asyncio.run(maintenance.write_checkpoints())
    asyncio.run(maintenance.delete_old())


def test_log_deleted_during_a_flush_fails_no_directory() -> None:
    broker, partition, maintenance = hosted()
    fill(partition)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(maintenance.flush_due())
            await asyncio.sleep(0)
            broker.publish(image_of({}))

    asyncio.run(scenario())
    assert not broker.directories[0].is_failed


def test_high_watermarks_are_written_alone_and_only_when_they_moved() -> None:
    broker, partition, maintenance = hosted()
    append(partition, b"a")
    asyncio.run(maintenance.write_high_watermarks())
    assert read_offsets(broker.disk, f"/d1/{HIGH_WATERMARK}") == {NAME: 1}
    assert RECOVERY_POINT not in broker.disk.list("/d1")
    before = broker.disk.operations
    asyncio.run(maintenance.write_high_watermarks())
    assert broker.disk.operations == before


def test_high_watermark_of_a_new_log_is_written_though_it_equals_that_of_the_old_one() -> None:
    broker, _, maintenance = hosted()
    asyncio.run(maintenance.write_high_watermarks())
    assert read_offsets(broker.disk, f"/d1/{HIGH_WATERMARK}") == {NAME: 0}
    broker.publish(image_of({"other": (2, {0: partition_of(1)})}))
    asyncio.run(maintenance.write_high_watermarks())
    assert read_offsets(broker.disk, f"/d1/{HIGH_WATERMARK}") == {TopicPartition("other", 0): 0}


def test_removal_of_files_looks_only_into_logs_with_deleted_segments() -> None:
    broker, partition, maintenance = hosted(retention_ms="1000")
    purged: list[str] = []
    purge = partition.log.purge_deleted
    partition.log.purge_deleted = lambda: purged.append("x") or purge()  # type: ignore[method-assign, func-returns-value]
    asyncio.run(maintenance.remove_files())
    assert purged == []
    fill(partition)
    broker.clock.pass_ms(2000)
    asyncio.run(maintenance.delete_old())
    assert partition.log.deleted_segments
    broker.clock.pass_ms(10 * 60_000)
    asyncio.run(maintenance.remove_files())
    assert purged == ["x"]
    assert not partition.log.deleted_segments


def test_idle_producers_expire() -> None:
    broker, partition, maintenance = hosted()
    partition.append(batch_of(b"a", producer=Producer(7, 0, 0)), now=broker.clock.now())
    assert len(list(partition.log.producers.entries())) == 1
    broker.clock.pass_ms(86_400_001)
    asyncio.run(maintenance.expire_producers())
    assert not list(partition.log.producers.entries())


def test_compaction_keeps_the_newest_record_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, partition, maintenance = hosted(
        cleanup_policy="compact", min_cleanable_dirty_ratio="0.1"
    )
    fill(partition)
    committed: list[str] = []
    commit = LogDirectories.commit

    async def recorded(
        self: LogDirectories, directory: LogDirectory, files: Sequence[Syncable]
    ) -> None:
        committed.extend(file.path for file in files)
        await commit(self, directory, files)

    monkeypatch.setattr(LogDirectories, "commit", recorded)
    config = config_of(log_cleaner_dedupe_buffer_size=1 << 16)
    cleaning = LogCleanerService(broker.host, config, maintenance.now)

    asyncio.run(clean_once(cleaning, partition))
    kept = values_in(partition.log)
    assert kept[-1] == b"%064d" % 5
    assert len(kept) < 6
    assert any(path.endswith(".log.cleaned") for path in committed), "synced on the event loop"


def test_damaged_log_is_compacted_after_its_repair() -> None:
    broker, partition, maintenance = hosted(
        cleanup_policy="compact", min_cleanable_dirty_ratio="0.1"
    )
    fill(partition)
    file = partition.log.segments[0].file
    (sound,) = file.pread(1, 80)
    file.pwrite(bytes([sound ^ 1]), 80)
    cleaning = LogCleanerService(
        broker.host, config_of(ottla_cleaner_interval_ms=1), maintenance.now
    )
    cleaner = None

    async def scenario() -> None:
        nonlocal cleaner
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(cleaning.run(lambda: None))
            async with asyncio.timeout(SECONDS_MAX):
                while not (cleaner and cleaner.uncleanable):
                    await asyncio.sleep(0)
                    cleaner = cleaning._cleaners.get(partition.directory.path)
                file.pwrite(bytes([sound]), 80)
                broker.host.log_events.repaired(partition)
                assert not cleaner.uncleanable
                while len(values_in(partition.log)) == 6:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0)
            running.cancel()

    asyncio.run(scenario())
    assert values_in(partition.log)[-1] == b"%064d" % 5


def test_clean_stop_needs_no_recovery_and_a_kill_loses_nothing_synced() -> None:
    broker, partition, maintenance = hosted()
    fill(partition, 3)
    asyncio.run(maintenance.flush(partition))
    append(partition, b"not synced")
    broker.disk.crash()
    broker.disk.restart()
    again = broker.again(one())
    kept = values_in(again.partitions.get("orders", 0).log)
    assert kept[:3] == [b"%064d" % number for number in range(3)]
    again.stop()
    assert ".kafka_cleanshutdown" in again.disk.list("/d1")
    third = again.again(one())
    assert third.directories[0].last_shutdown.broker_epoch == 5
    assert values_in(third.partitions.get("orders", 0).log) == kept


def test_task_intervals_come_from_the_settings() -> None:
    _, _, maintenance = hosted()
    config = config_of(log_retention_check_interval_ms=123, log_initial_task_delay_ms=7)
    services = {each.name: each for each in maintenance_tasks(maintenance, config)}
    assert services["retention"].interval_ms == 123
    assert services["retention"].delay_ms == 7
    assert services["producer-expiry"].interval_ms == 600_000
    assert services["high-watermarks"].interval_ms == 5000
    assert len({each for each in services}) == len(services)


def test_periodic_task_is_repeated() -> None:
    done = []

    async def work() -> None:
        done.append(1)
        if len(done) == 3:
            raise OSError("enough")

    try:
        asyncio.run(PeriodicTask("work", 0, work).run(lambda: done.append(0)))
    except OSError:
        assert done == [0, 1, 1]


def test_disk_usage_of_a_partition_includes_all_its_files() -> None:
    broker, partition, _ = hosted()
    fill(partition)
    scan = DiskUsage(broker.host)
    asyncio.run(scan.scan())
    names = broker.disk.list("/d1/orders-0")
    assert any(name.endswith(".index") for name in names)
    assert scan.sizes == {NAME: sum(broker.disk.size(f"/d1/orders-0/{name}") for name in names)}
    assert scan.sizes[NAME] > partition.log.size
    broker.disk.remove_tree("/d1/orders-0")
    asyncio.run(scan.scan())
    assert scan.sizes == {NAME: 0}
