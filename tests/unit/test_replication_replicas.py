"""Partitions that are created, deleted and changed by images."""

import asyncio
import errno

import pytest
from partition_fixtures import append, values_in
from replicas_fixtures import BROKER, TOPIC, Broker, image_of, partition_of, topic_id

from ottla.protocol.faults import NotLeader, StorageFailed, UnknownTopicOrPartition
from ottla.protocol.types import TopicPartition
from ottla.replication.partition_reads import ReadRequest


def orders(*partitions, number: int = 1, **more):
    return image_of({"orders": (number, dict(enumerate(partitions)))}, **more)


def test_assigned_partitions_get_logs_and_lead_or_follow() -> None:
    broker = Broker().start()
    broker.publish(orders(partition_of(1, 2), partition_of(2, 1), partition_of(2, 3)))
    assert len(broker.partitions) == 2
    assert broker.partitions.get("orders", 0).is_leader
    assert not broker.partitions.get("orders", 1).is_leader
    assert broker.following == {"orders-1": 2}
    assert broker.events == [("led", "orders", 0, 0)]
    assert broker.partitions.by_id(topic_id(1), 1) is broker.partitions.get("orders", 1)


def test_logs_spread_over_directories_and_are_reported() -> None:
    broker = Broker().start()
    broker.publish(orders(*[partition_of(1)] * 4))
    assert [len(each.logs) for each in broker.directories] == [2, 2]
    assert len(broker.reported) == 4, "the image named no directory"


def test_log_is_created_in_the_directory_that_the_image_names() -> None:
    broker = Broker().start()
    home = broker.directories[1].directory_id
    broker.publish(orders(*[partition_of(1, directories=(home,))] * 3))
    assert [len(each.logs) for each in broker.directories] == [0, 3]
    assert broker.reported == []


def test_unknown_and_not_hosted_partitions_raise_different_errors() -> None:
    broker = Broker().start(orders(partition_of(1), partition_of(2)))
    with pytest.raises(UnknownTopicOrPartition):
        broker.partitions.find("nothing", 0)
    with pytest.raises(UnknownTopicOrPartition):
        broker.partitions.find("orders", 2)
    with pytest.raises(NotLeader):
        broker.partitions.find("orders", 1)
    assert broker.partitions.find("orders", 0).is_leader


def test_deleted_topic_is_renamed_and_purged_later() -> None:
    broker = Broker(paths=("/d1",)).start(orders(partition_of(1)))
    replies: list = []
    partition = broker.partitions.get("orders", 0)
    partition.on_appended(lambda: replies.append(partition.is_leader))
    broker.publish(image_of({}))
    assert replies == [False]
    assert broker.partitions.get("orders", 0) is None
    assert broker.events[-1] == ("unled", "orders", 0, None)
    (left,) = [n for n in broker.disk.list("/d1") if n.startswith("orders")]
    assert left.endswith("-delete")
    assert sum(broker.replicas.purge()) == 0
    broker.clock.pass_ms(60_000)
    assert sum(broker.replicas.purge()) == 1
    assert not [n for n in broker.disk.list("/d1") if n.startswith("orders")]


def test_old_reference_to_a_deleted_partition_is_rejected() -> None:
    broker = Broker(paths=("/d1",)).start(orders(partition_of(2, 1)))
    partition = broker.partitions.get("orders", 0)
    broker.publish(image_of({}))
    with pytest.raises(NotLeader):
        partition.read(ReadRequest(0, 100, allow_follower=True))
    with pytest.raises(NotLeader):
        append(partition, b"a")
    assert not broker.directories[0].is_failed


def test_topic_recreated_in_one_image_is_another_topic() -> None:
    broker = Broker(paths=("/d1",)).start(orders(partition_of(1)))
    append(broker.partitions.get("orders", 0), b"old")
    broker.publish(orders(partition_of(1), number=2))
    assert values_in(broker.partitions.get("orders", 0).log) == []
    assert broker.partitions.by_id(topic_id(1), 0) is None


def test_partition_that_moved_away_is_deleted_here() -> None:
    broker = Broker().start(orders(partition_of(1, 2)))
    broker.publish(orders(partition_of(2, 3, epoch=1, partition_epoch=1)))
    assert len(broker.partitions) == 0
    assert not any(each.logs for each in broker.directories)


def test_leadership_changes_are_notified() -> None:
    broker = Broker().start(orders(partition_of(1, 2)))
    broker.publish(orders(partition_of(1, 2, leader=2, epoch=1, partition_epoch=1)))
    assert broker.following == {"orders-0": 2}
    broker.publish(orders(partition_of(1, 2, leader=-1, epoch=2, partition_epoch=2)))
    assert broker.following == {}
    broker.publish(orders(partition_of(1, 2, leader=1, epoch=3, partition_epoch=3)))
    assert broker.events == [
        ("led", "orders", 0, 0),
        ("unled", "orders", 0, 1),
        ("led", "orders", 0, 3),
    ]


def test_change_of_the_isr_alone_is_no_new_leadership() -> None:
    broker = Broker().start(orders(partition_of(1, 2)))
    broker.publish(orders(partition_of(1, 2, isr=(1,), partition_epoch=1)))
    assert broker.partitions.get("orders", 0).isr == (1,)
    assert broker.events == [("led", "orders", 0, 0)]


def test_fenced_broker_does_not_hold_the_high_watermark() -> None:
    broker = Broker().start(orders(partition_of(1, 2, 3)))
    partition = broker.partitions.get("orders", 0)
    for follower in (2, 3):
        partition.follower_fetched(follower, 0, log_start=0)
    left = partition_of(1, 2, 3, isr=(1, 2), partition_epoch=1)
    broker.publish(orders(left))
    append(partition, b"a")
    partition.follower_fetched(2, 1, log_start=0)
    assert partition.log.high_watermark == 0, "3 may join again"
    broker.publish(orders(left, brokers=(1, 2)))
    assert partition.log.high_watermark == 1


def test_settings_reach_live_logs_from_topic_and_broker() -> None:
    one = orders(partition_of(1))
    broker = Broker(static={"log.retention.hours": "2"}).start(one)
    log = broker.partitions.get("orders", 0).log
    assert log.config.retention_ms == 2 * 3_600_000
    broker.publish(orders(partition_of(1), configs={(BROKER, ""): {"log.retention.ms": "5000"}}))
    assert log.config.retention_ms == 5000
    own = {"retention.ms": "77", "cleanup.policy": "compact", "min.insync.replicas": "2"}
    broker.publish(orders(partition_of(1), configs={(TOPIC, "orders"): own}))
    assert log.config.retention_ms == 77
    assert log.config.is_compacted
    assert not log.config.is_deleted
    assert broker.partitions.get("orders", 0).config.min_insync_replicas == 2
    broker.publish(one)
    assert log.config.retention_ms == 2 * 3_600_000


def test_unknown_topic_setting_is_ignored(caplog) -> None:
    configs = {(TOPIC, "orders"): {"no.such.key": "1", "retention.ms": "9"}}
    broker = Broker().start(orders(partition_of(1), configs=configs))
    assert broker.partitions.get("orders", 0).log.config.retention_ms == 9
    assert "no.such.key" in caplog.text


def test_outdated_images_are_not_applied() -> None:
    broker = Broker(paths=("/d1",))
    broker.publish(orders(partition_of(1)))
    broker.publish(image_of({}))
    assert len(broker.partitions) == 0
    assert "orders-0" not in broker.disk.list("/d1")
    broker.start()
    assert len(broker.partitions) == 0


def test_records_survive_a_restart() -> None:
    image = orders(partition_of(1, epoch=3))
    broker = Broker().start(image)
    append(broker.partitions.get("orders", 0), b"a", b"b")
    broker.stop()
    again = broker.again(image)
    partition = again.partitions.get("orders", 0)
    assert values_in(partition.log) == [b"a", b"b"]
    assert partition.log.high_watermark == 2
    assert again.partitions.find("orders", 0).is_leader


def test_logs_of_removed_replicas_become_stray() -> None:
    broker = Broker(paths=("/d1",)).start(orders(partition_of(1), partition_of(1)))
    append(broker.partitions.get("orders", 0), b"a")
    broker.stop()
    again = broker.again(orders(partition_of(1), partition_of(2), number=2))
    assert values_in(again.partitions.get("orders", 0).log) == []
    names = again.disk.list("/d1")
    assert sum(name.endswith("-stray") for name in names) == 2


def test_of_two_logs_the_one_further_ahead_is_used() -> None:
    broker = Broker().start(orders(partition_of(1)))
    append(broker.partitions.get("orders", 0), b"a")
    first, second = broker.directories
    second.create_log(
        TopicPartition("orders", 0), topic_id(1), first.logs[("orders", 0)].log.config
    )
    broker.stop()
    again = broker.again(orders(partition_of(1, directories=(second.directory_id,))))
    assert again.partitions.get("orders", 0).directory.path == "/d1"
    assert any(name.endswith("-stray") for name in again.disk.list("/d2"))


def test_one_failed_directory_leaves_the_others_alone() -> None:
    broker = Broker().start(orders(*[partition_of(1)] * 4))
    lost: list[str] = []
    broker.host.directories.on_failure(lambda directory: lost.append(directory.path))
    there = [p for p in broker.partitions if p.directory.path == "/d1"]
    broker.disk.fail("write", error=errno.EIO, path_contains="/d1/")
    with pytest.raises(StorageFailed):
        append(there[0], b"a")
    assert lost == ["/d1"]
    for partition in broker.partitions:
        if partition in there:
            with pytest.raises(StorageFailed):
                broker.partitions.find("orders", partition.index)
        else:
            append(broker.partitions.find("orders", partition.index), b"b")
    assert [e for e in broker.events if e[0] == "unled"] == [
        ("unled", "orders", each.index, 0) for each in there
    ]
    broker.publish(image_of({}))
    assert len(broker.partitions) == 0, "a partition that cannot be deleted is closed all the same"


def test_replica_in_an_offline_directory_is_not_created_elsewhere() -> None:
    broker = Broker().start(orders(partition_of(1)))
    home = broker.partitions.get("orders", 0).directory
    image = orders(partition_of(1, directories=(home.directory_id,)))
    broker.stop()
    broker.disk.fail("write", error=errno.EIO, path_contains=f"{home.path}/", times=1000)
    again = broker.again(image)
    assert len(again.partitions) == 0
    with pytest.raises(StorageFailed):
        again.partitions.find("orders", 0)
    again.publish(image_of({}))
    with pytest.raises(UnknownTopicOrPartition):
        again.partitions.find("orders", 0)


def test_directory_that_fails_on_create_is_replaced_by_another() -> None:
    broker = Broker().start()
    broker.disk.fail("mkdir", error=errno.EIO, path_contains="/d1/", times=100)
    broker.publish(orders(partition_of(1)))
    assert broker.partitions.find("orders", 0).directory.path == "/d2"
    assert broker.directories[0].is_failed


def test_failure_of_all_directories_is_reported() -> None:
    broker = Broker().start()
    for directory in broker.directories:
        broker.host.storage_failed(directory, "gone")
    asyncio.run(broker.host.directories.wait_all_failed())
