"""Many new partitions in one image: created in slices, between which everything else goes on."""

import asyncio
import itertools

import pytest
from replicas_fixtures import Broker, image_of, partition_of, topic_id

from ottla.protocol.faults import NotLeader, UnknownTopicOrPartition
from ottla.replication.replicas import AT_ONCE_COST, CREATE_COST, PURGE_SLICE_MAX, SLICE_COST

AT_ONCE_MAX, SLICE_MAX = AT_ONCE_COST // CREATE_COST, SLICE_COST // CREATE_COST
MANY = AT_ONCE_MAX + 3 * SLICE_MAX + 1


def many(count: int = MANY, number: int = 1, **fields):
    return {"orders": (number, dict.fromkeys(range(count), partition_of(1, **fields)))}


def finish(broker: Broker) -> int:
    """Create everything; return the number of slices."""
    slices = 0
    while broker.replicas.host_pending():
        slices += 1
    return slices


def test_one_image_creates_only_a_few_partitions_at_once() -> None:
    broker = Broker().start()
    broker.publish(image_of(many()))
    assert len(broker.partitions) == AT_ONCE_MAX
    assert broker.replicas.host_pending() == SLICE_MAX
    assert len(broker.partitions) == AT_ONCE_MAX + SLICE_MAX
    assert finish(broker) == 3
    assert len(broker.partitions) == MANY
    assert len(broker.events) == MANY, "every partition is reported as led, once"


def test_partition_that_waits_is_not_led_yet() -> None:
    broker = Broker().start()
    broker.publish(image_of(many()))
    with pytest.raises(NotLeader):
        broker.partitions.find("orders", MANY - 1)
    with pytest.raises(UnknownTopicOrPartition):
        broker.partitions.find("orders", MANY)


def test_small_topic_does_not_wait_for_a_large_one() -> None:
    broker = Broker().start()
    broker.publish(image_of(many()))
    broker.publish(image_of({**many(), "small": (2, {0: partition_of(1)})}))
    assert broker.partitions.find("small", 0).is_leader


def test_waiting_partition_is_created_as_the_newest_image_has_it() -> None:
    broker = Broker().start()
    broker.publish(image_of(many()))
    changed = many()
    changed["orders"][1][MANY - 1] = partition_of(1, 2, leader=2, epoch=4, partition_epoch=3)
    broker.publish(image_of(changed))
    finish(broker)
    partition = broker.partitions.get("orders", MANY - 1)
    assert (partition.is_leader, partition.leader_epoch) == (False, 4)
    assert broker.following == {f"orders-{MANY - 1}": 2}


def test_deleted_topic_leaves_no_partition_that_waits() -> None:
    broker = Broker(paths=("/d1",)).start()
    broker.publish(image_of(many()))
    broker.publish(image_of({}))
    assert finish(broker) == 0
    assert (len(broker.partitions), broker.directories[0].logs) == (0, {})


def test_topic_that_is_created_again_while_its_partitions_wait_gets_new_logs() -> None:
    broker = Broker(paths=("/d1",)).start()
    broker.publish(image_of(many()))
    broker.replicas.host_pending()
    broker.publish(image_of(many(number=2)))
    finish(broker)
    assert {each.topic_id for each in broker.partitions} == {topic_id(2)}
    assert {each.topic_id for each in broker.directories[0].logs.values()} == {topic_id(2)}
    assert len(broker.partitions) == MANY


def test_partition_moved_away_while_it_waits_is_not_created() -> None:
    broker = Broker().start()
    broker.publish(image_of(many()))
    changed = many()
    changed["orders"][1][MANY - 1] = partition_of(2, partition_epoch=1)
    broker.publish(image_of(changed))
    finish(broker)
    assert len(broker.partitions) == MANY - 1
    assert broker.partitions.get("orders", MANY - 1) is None


def test_log_of_a_partition_deleted_during_the_start_is_deleted() -> None:
    first = Broker(paths=("/d1",)).start()
    first.publish(image_of(many()))
    finish(first)
    first.stop()
    second = first.again(image_of(many()))
    assert len(second.partitions) == AT_ONCE_MAX
    second.publish(image_of({}))
    assert finish(second) == 0
    assert second.directories[0].logs == {}
    assert len(second.replicas.deleted_logs) == MANY


def test_partitions_that_wait_at_a_stop_are_created_by_the_next_start() -> None:
    first = Broker(paths=("/d1",)).start()
    first.publish(image_of(many()))
    first.replicas.host_pending()
    first.stop()
    second = first.again(image_of(many()))
    finish(second)
    assert len(second.partitions) == MANY


def test_service_is_ready_when_all_partitions_are_hosted_and_can_be_cancelled() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.publish(image_of(many()))
        ready = asyncio.Event()
        running = asyncio.create_task(broker.replicas.run(ready.set))
        await ready.wait()
        assert len(broker.partitions) == MANY
        broker.publish(image_of(many(2 * MANY)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert MANY < len(broker.partitions) < 2 * MANY
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        broker.stop()

    asyncio.run(scenario())


def test_loop_runs_between_slices_of_two_thousand_partitions() -> None:
    async def scenario() -> None:
        broker = Broker(paths=("/d1",))
        running = asyncio.create_task(broker.replicas.run(lambda: None))
        await asyncio.sleep(0)
        broker.publish(image_of(many(2_000)))
        sizes = [len(broker.partitions)]
        while sizes[-1] < 2_000:
            await asyncio.sleep(0)
            sizes.append(len(broker.partitions))
        steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
        assert max(steps) <= SLICE_MAX
        running.cancel()

    asyncio.run(scenario())


def test_many_deleted_partitions_are_renamed_with_one_sync_per_directory() -> None:
    broker = Broker().start(image_of(many()))
    finish(broker)
    synced = []
    sync_dir = broker.disk.sync_dir
    broker.disk.sync_dir = lambda path: (synced.append(path), sync_dir(path))[1]
    broker.publish(image_of({}))
    assert len(broker.partitions) == 0
    assert synced == list(broker.paths)
    assert len(broker.replicas.deleted_logs) == MANY


def test_files_of_deleted_partitions_are_removed_in_slices() -> None:
    broker = Broker().start(image_of(many()))
    finish(broker)
    broker.publish(image_of({}))
    broker.clock.pass_ms(60_000)
    assert sum(next(broker.replicas.purge()) for _ in range(2)) == 2 * PURGE_SLICE_MAX
    assert len(broker.replicas.deleted_logs) == MANY - 2 * PURGE_SLICE_MAX
    slices = list(broker.replicas.purge())
    assert max(slices) == PURGE_SLICE_MAX
    assert sum(slices) == MANY - 2 * PURGE_SLICE_MAX
    assert not broker.replicas.deleted_logs


# -- partitions that change ---------------------------------------------------

CHANGED = AT_ONCE_COST + 2 * SLICE_COST + 1


def led_by(leader: int, count: int = CHANGED, **more):
    fields = {"leader": leader, "epoch": leader, "partition_epoch": leader, **more}
    return {"orders": (1, dict.fromkeys(range(count), partition_of(1, 2, 3, **fields)))}


def following(count: int = CHANGED) -> Broker:
    """Return a broker that follows so many partitions."""
    broker = Broker(paths=("/d1",)).start(image_of(led_by(2, count)))
    finish(broker)
    broker.events.clear()
    return broker


def led(broker: Broker) -> int:
    return sum(each.is_leader for each in broker.partitions)


def test_image_that_changes_many_partitions_is_applied_in_slices() -> None:
    broker = following()
    broker.publish(image_of(led_by(1, epoch=3, partition_epoch=3)))
    assert led(broker) == AT_ONCE_COST
    assert broker.replicas.host_pending() == SLICE_COST
    assert led(broker) == AT_ONCE_COST + SLICE_COST
    assert finish(broker) == 2
    assert led(broker) == CHANGED == len(broker.events)
    assert broker.following == {}


def test_changed_partition_that_waits_is_served_as_before() -> None:
    broker = following()
    broker.publish(image_of(led_by(1, epoch=3, partition_epoch=3)))
    last = broker.partitions.find("orders", CHANGED - 1)
    assert (last.is_leader, last.leader_id, last.leader_epoch) == (False, 2, 2)
    assert broker.following[str(last)] == 2


def test_changed_partition_that_waits_gets_the_newest_image_once() -> None:
    broker = following()
    broker.publish(image_of(led_by(1, epoch=3, partition_epoch=3)))
    newest = led_by(1, epoch=3, partition_epoch=3)
    newest["orders"][1][CHANGED - 1] = partition_of(1, 2, 3, leader=3, epoch=4, partition_epoch=4)
    broker.publish(image_of(newest))
    assert finish(broker) == 2
    last = broker.partitions.find("orders", CHANGED - 1)
    assert (last.is_leader, last.leader_id, last.leader_epoch) == (False, 3, 4)
    assert ("led", "orders", CHANGED - 1, 3) not in broker.events
    assert broker.following == {str(last): 3}


def test_leaders_are_applied_before_followers() -> None:
    broker = following()
    changed = led_by(3, epoch=3, partition_epoch=3)
    for index in range(CHANGED - 10, CHANGED):
        changed["orders"][1][index] = partition_of(1, 2, 3, leader=1, epoch=3, partition_epoch=3)
    broker.publish(image_of(changed))
    assert led(broker) == 10, "they are the last ones of the image"
    back = {"orders": (1, dict(changed["orders"][1]))}
    for index in range(CHANGED - 10, CHANGED):
        back["orders"][1][index] = partition_of(1, 2, 3, leader=2, epoch=4, partition_epoch=4)
    broker.publish(image_of(back))
    assert led(broker) == 0, "and so are those that are no longer led here"
    finish(broker)
    assert set(broker.following.values()) == {2, 3}


def test_changed_partition_that_is_deleted_while_it_waits_is_deleted() -> None:
    broker = following()
    broker.publish(image_of(led_by(1, epoch=3, partition_epoch=3)))
    broker.publish(image_of({}))
    assert finish(broker) == 0
    assert (len(broker.partitions), broker.directories[0].logs) == (0, {})


def test_fenced_broker_lets_many_high_watermarks_advance_in_slices() -> None:
    broker = Broker(paths=("/d1",)).start(image_of(led_by(1)))
    finish(broker)
    advanced: list[int] = []
    for each in broker.partitions:
        each.brokers_changed = lambda index=each.index: advanced.append(index)
    broker.publish(image_of(led_by(1), brokers=(1, 2)))
    assert len(advanced) == AT_ONCE_COST
    assert finish(broker) == 3
    assert sorted(advanced) == list(range(CHANGED))


def test_service_applies_changes_while_the_loop_runs() -> None:
    async def scenario() -> None:
        broker = following(CHANGED)
        running = asyncio.create_task(broker.replicas.run(lambda: None))
        await asyncio.sleep(0)
        broker.publish(image_of(led_by(1, CHANGED, epoch=3, partition_epoch=3)))
        sizes = [led(broker)]
        while sizes[-1] < CHANGED:
            await asyncio.sleep(0)
            sizes.append(led(broker))
        steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
        assert max(steps) <= SLICE_COST
        running.cancel()

    asyncio.run(scenario())
