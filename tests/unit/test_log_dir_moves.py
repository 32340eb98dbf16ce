"""Partitions move between the log directories of a broker without losing anything."""

import asyncio
import errno
import os

import pytest
from moves_fixtures import NOW, ORDERS, Mover, led
from partition_fixtures import batch_of
from replicas_fixtures import Broker, image_of, partition_of

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CorruptBatch,
    InvalidReplicaAssignment,
    InvalidTopic,
    LogDirNotFound,
    StorageFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import DivergingEpoch
from ottla.replication.maintenance import log_dir_moves
from ottla.replication.maintenance.log_dir_moves import LogDirMoves, MoveSettings
from ottla.storage.directory.log_move_steps import Copy, Cut, Restart, Span, Swap, decide_step
from ottla.storage.log.log_maintenance import delete_old_segments
from simulation.platter import Keep

SMALL = {"internal.segment.bytes": "400"}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%04d" % at for at in range(start, start + count)]


def mover(count: int = 20, **configs: str) -> Mover:
    """A leader with records in many segments."""
    made = Mover().start(led(configs={**SMALL, **configs}))
    made.append(*numbered(count))
    return made


# -- the next step ---------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "future", "step"),
    [
        ((0, 10), (0, 0), Copy(0)),
        ((0, 10), (0, 7), Copy(7)),
        ((0, 10), (0, 10), Swap()),
        ((3, 10), (0, 10), Swap()),
        ((0, 0), (0, 0), Swap()),
        ((8, 10), (0, 7), Restart(8)),
        ((8, 10), (0, 8), Copy(8)),
        ((10, 10), (0, 7), Restart(10)),
        ((0, 5), (0, 7), Cut(5)),
        ((0, 10), (3, 10), Restart(0)),
        ((0, 10), (3, 12), Restart(0)),
    ],
)
def test_next_step(source: tuple[int, int], future: tuple[int, int], step: object) -> None:
    assert decide_step(Span(*map(Offset, source)), Span(*map(Offset, future))) == step


# -- requests -----------------------------------------------------------------


def test_move_to_an_unknown_directory_is_rejected() -> None:
    made = mover()
    with pytest.raises(LogDirNotFound) as caught:
        made.moves.alter(ORDERS, "/elsewhere")
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    # Checked before the partition is looked up.
    with pytest.raises(LogDirNotFound):
        made.moves.alter(TopicPartition("nope", 0), "/elsewhere")


def test_path_with_a_nul_is_not_found() -> None:
    made = Mover().start()
    settings = MoveSettings(paths=("/d1", "/d2"), canonical=os.path.realpath)
    moves = LogDirMoves(made.host, made.broker.replicas, settings)
    with pytest.raises(LogDirNotFound):
        moves.alter(ORDERS, "/d2\0")


def test_two_spellings_of_a_path_are_equal() -> None:
    made = mover()
    made.moves.alter(ORDERS, "/x/../d2/")
    assert made.moves.moves[ORDERS].target.path == "/d2"


def test_paths_are_compared_in_canonical_form() -> None:
    made = Mover().start()
    links = {"/link": "/d2"}
    settings = MoveSettings(paths=("/d1", "/d2"), canonical=lambda path: links.get(path, path))
    moves = LogDirMoves(made.host, made.broker.replicas, settings)
    moves.alter(ORDERS, "/link")
    assert moves.moves[ORDERS].target.path == "/d2"


def test_replica_created_later_uses_the_preferred_directory() -> None:
    made = mover()
    other = TopicPartition("orders", 1)
    with pytest.raises(UnknownTopicOrPartition) as caught:
        made.moves.alter(other, "/d2")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for index in (2, 3, 4):
        with pytest.raises(UnknownTopicOrPartition):
            made.moves.alter(TopicPartition("orders", index), "/d2")
    both = {index: partition_of(1) for index in range(5)}
    made.broker.publish(image_of({"orders": (1, both)}))
    assert sorted(made.there.logs) == [TopicPartition("orders", index) for index in (1, 2, 3, 4)]


def test_move_to_the_current_directory_does_nothing() -> None:
    made = mover()
    made.moves.alter(ORDERS, made.here.path)
    assert made.moves.moves == {} and made.names("/d2") == []


def test_repeated_move_request_is_idempotent() -> None:
    made = mover()
    made.move()
    first = made.moves.moves[ORDERS]
    made.move()
    assert made.moves.moves[ORDERS] is first
    assert len(made.names("/d2")) == 1


def test_another_target_replaces_a_move() -> None:
    made = Mover(paths=("/d1", "/d2", "/d3")).start(led(configs=SMALL))
    made.append(*numbered(20))
    assert made.here.path == "/d1"
    made.moves.alter(ORDERS, "/d2")
    made.step(3)
    made.moves.alter(ORDERS, "/d3")
    assert [name[-7:] for name in made.names("/d2")] == ["-delete"]
    assert made.host.directories.all[1].future_logs == {}
    made.carry_out()
    assert made.here.path == "/d3" and made.values() == numbered(20)


def test_move_back_to_the_current_directory_cancels_the_move() -> None:
    made = mover()
    made.move()
    begun = made.moves.moves[ORDERS]
    made.step(2)
    made.moves.alter(ORDERS, made.here.path)
    assert made.moves.moves == {} and made.there.future_logs == {}
    asyncio.run(made.moves.carry_out(begun))
    assert made.here.path == "/d1" and made.values() == numbered(20)


def test_move_to_an_offline_directory_is_rejected() -> None:
    made = mover()
    made.there.fail("pulled out")
    with pytest.raises(StorageFailed):
        made.move()


def test_move_to_a_cordoned_directory_is_rejected() -> None:
    made = mover()
    made.there.is_cordoned = True
    with pytest.raises(InvalidReplicaAssignment, match="cordoned"):
        made.move()
    assert not made.there.future_logs


def test_new_log_is_not_created_in_a_cordoned_directory() -> None:
    made = mover()
    made.there.is_cordoned = True
    more = {index: partition_of(1) for index in range(5)}
    made.broker.publish(image_of({"orders": (1, more)}))
    assert len(made.here.logs) == 5 and not made.there.logs


def test_new_log_is_created_although_all_directories_are_cordoned() -> None:
    made = mover()
    made.here.is_cordoned = made.there.is_cordoned = True
    made.broker.publish(image_of({"orders": (1, {0: partition_of(1), 1: partition_of(1)})}))
    assert len(made.here.logs) + len(made.there.logs) == 2


def test_move_to_a_directory_offline_since_the_start_is_rejected() -> None:
    made = Mover(paths=("/d1", "/d2"))
    settings = MoveSettings(paths=("/d1", "/d2", "/lost"))
    moves = LogDirMoves(made.host, made.broker.replicas, settings)
    made.start()
    with pytest.raises(StorageFailed, match="/lost"):
        moves.alter(ORDERS, "/lost")


def test_move_of_an_offline_partition_is_rejected() -> None:
    made = mover()
    made.host.storage_failed(made.here, "pulled out")
    with pytest.raises(StorageFailed):
        made.moves.alter(ORDERS, "/d2")


def test_failed_creation_of_a_future_log_takes_the_directory_offline() -> None:
    made = mover()
    assert made.disk is not None
    made.disk.fail("create", error=errno.ENOSPC, path_contains="-future", times=1)
    with pytest.raises(StorageFailed):
        made.move()
    assert made.there.is_failed and made.moves.moves == {}
    made.append(b"goes on")


def test_unknown_directory_in_the_way_rejects_the_move_only() -> None:
    made = mover()
    made.disk.make_dirs("/d2/orders-0/somebody's")
    with pytest.raises(StorageFailed, match="could not be opened"):
        made.move()
    assert not made.there.is_failed and made.disk.exists("/d2/orders-0/somebody's")


def test_topic_name_too_long_for_a_future_log_is_rejected() -> None:
    topic = "t" * 240
    made = Mover()
    made.broker.start(image_of({topic: (1, {0: partition_of(1)})}))
    with pytest.raises(InvalidTopic):
        made.moves.alter(TopicPartition(topic, 0), "/d2")


# -- copying ----------------------------------------------------------------


def test_partition_moves_with_everything() -> None:
    made = mover()
    made.append(b"last", producer=Producer(7, 0, 0))
    old = made.partition.log
    made.partition.delete_records(Offset(3))
    before = old.epochs.entries, old.log_start_offset, old.high_watermark
    made.move()
    made.carry_out()
    log = made.partition.log
    assert made.here.path == "/d2" and log is not old
    assert made.values() == [*numbered(20)[3:], b"last"]
    assert (log.epochs.entries, log.log_start_offset, log.high_watermark) == before
    assert made.here.logs[ORDERS].log is log and made.here.future_logs == {}
    assert made.names("/d2") == ["orders-0"]
    assert [name[-7:] for name in made.names("/d1")] == ["-delete"]
    assert made.broker.reported[-1] == "orders-0 /d2"
    assert made.moves.moves == {}


def test_old_files_are_removed_after_the_delay() -> None:
    made = mover()
    made.move()
    made.carry_out()
    assert sum(made.broker.replicas.purge()) == 0
    made.broker.clock.pass_ms(60_000)
    assert sum(made.broker.replicas.purge()) == 1
    assert made.names("/d1") == []


def test_duplicate_is_recognized_after_a_move() -> None:
    made = mover()
    made.append(b"once", producer=Producer(7, 0, 0))
    # Also when the producer's record has been trimmed.
    made.partition.delete_records(Offset(-1))
    made.move()
    made.carry_out()
    again = made.partition.append(batch_of(b"once", producer=Producer(7, 0, 0)), now=NOW)
    assert again.is_duplicate


def test_leader_epoch_without_a_record_moves_too() -> None:
    made = mover()
    made.broker.publish(led(5, configs=SMALL))
    made.move()
    made.carry_out()
    assert made.partition.log.epochs.latest_epoch == 5


def test_partition_moves_there_and_back() -> None:
    made = mover()
    for at in range(4):
        made.move()
        made.append(b"more-%d" % at)
        made.carry_out()
    assert made.here.path == "/d1"
    assert made.values() == [*numbered(20), *(b"more-%d" % at for at in range(4))]


def test_records_appended_during_a_move_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 200)
    made = mover()
    made.move()
    for at in range(12):
        made.step()
        made.append(b"more-%d" % at)
    made.carry_out()
    assert made.here.path == "/d2"
    assert made.values() == [*numbered(20), *(b"more-%d" % at for at in range(12))]


def test_no_acknowledged_record_is_lost_while_producers_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 300)
    made = mover()
    acknowledged: list[bytes] = numbered(20)

    async def produce() -> None:
        at = 20
        while made.moves.moves:
            (value,) = numbered(1, at)
            made.append(value)
            acknowledged.append(value)
            at += 1
            await asyncio.sleep(0)
        made.append(b"after")

    async def work() -> None:
        made.move()
        (move,) = made.moves.moves.values()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            tasks.create_task(made.moves.carry_out(move))

    asyncio.run(work())
    assert made.here.path == "/d2" and len(acknowledged) > 25
    assert made.values() == [*acknowledged, b"after"]


def test_readers_and_waiters_are_notified_of_the_swap() -> None:
    made = mover()
    woken: list[str] = []
    made.partition.on_appended(lambda: woken.append(made.here.path))
    made.move()
    made.carry_out()
    assert woken == ["/d2"]


def test_reader_of_the_old_log_finishes() -> None:
    made = mover()
    log = made.partition.log
    part = log.read(Offset(0), 1 << 20, upto=log.log_end_offset)
    before = part.file.pread(part.length, part.position)
    made.move()
    made.carry_out()
    assert part.file.pread(part.length, part.position) == before


def test_source_trimmed_past_the_copy_restarts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 100)
    made = mover(**{"retention.bytes": "500"})
    made.move()
    made.step(3)
    future = made.moves.moves[ORDERS].future
    assert 0 < future.log_end_offset < 5
    delete_old_segments(made.partition.log, NOW)
    assert made.partition.log.log_start_offset > future.log_end_offset
    expected = made.values()
    made.carry_out()
    assert made.here.path == "/d2" and made.values() == expected != []
    assert made.partition.log.segments[0].base_offset > 0


def test_source_that_starts_within_a_batch_is_copied_from_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 100)
    made = mover(4)
    made.partition.append(batch_of(*numbered(10)), now=NOW)
    made.move()
    made.step(2)
    made.partition.delete_records(Offset(7))
    made.carry_out()
    assert made.values() == numbered(10)[3:]
    assert made.partition.log.log_start_offset == 7


def test_empty_source_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 100)
    made = mover(**{"retention.bytes": "0"})
    made.move()
    made.step(3)
    delete_old_segments(made.partition.log, NOW)
    made.carry_out()
    assert made.here.path == "/d2" and made.values() == []
    made.append(b"next")
    assert made.partition.log.log_end_offset == 21


def test_compacted_source_that_ends_with_a_gap_is_moved() -> None:
    made = Mover().start(led(configs={"cleanup.policy": "compact"}))
    made.append(*numbered(3))
    made.partition.log.roll(Offset(9))
    made.partition.log.set_high_watermark(Offset(9))
    made.move()
    made.carry_out()
    assert made.here.path == "/d2" and made.partition.log.log_end_offset == 9
    made.append(b"next")
    assert made.values() == [*numbered(3), b"next"]


def test_settings_changed_during_a_move_are_applied() -> None:
    made = mover()
    made.move()
    made.broker.publish(led(0, configs={**SMALL, "retention.ms": "5"}))
    made.carry_out()
    assert made.partition.log.config.retention_ms == 5


def test_deleted_partition_deletes_its_future_log() -> None:
    made = mover()
    made.move()
    begun = made.moves.moves[ORDERS]
    made.step(2)
    made.broker.publish(image_of({}))
    assert made.moves.moves == {}
    asyncio.run(made.moves.carry_out(begun))
    for path in ("/d1", "/d2"):
        assert [name[-7:] for name in made.names(path)] == ["-delete"]


def test_recreated_topic_may_move_at_once() -> None:
    made = mover()
    made.move()
    made.step(2)
    anew = image_of({"orders": (2, {0: partition_of(1, epoch=1)})})
    made.broker.publish(anew)
    made.append(b"new")
    made.move()
    made.carry_out()
    assert made.values() == [b"new"]


# -- followers -----------------------------------------------------------------


def sent(offset: int, value: bytes, epoch: int) -> bytes:
    """A batch as a leader sends it."""
    record = Record(Offset(offset), NOW, b"k", value)
    return bytes(build_batch([record], base_offset=offset, leader_epoch=epoch))


def following(count: int) -> Mover:
    """A follower of broker 2 that has records of epoch 0."""
    made = Mover().start(led(0, leader=2, configs=SMALL))
    follower = Follower(made.host, made.partition)
    for at, value in enumerate(numbered(count)):
        follower.append(sent(at, value, 0), NOW)
    return made


def test_future_log_is_cut_with_its_source() -> None:
    made = following(10)
    made.move()
    made.step(2)
    future = made.moves.moves[ORDERS].future
    assert future.log_end_offset == 5
    made.broker.publish(led(1, leader=2, configs=SMALL))
    follower = Follower(made.host, made.partition)
    assert follower.cut(DivergingEpoch(0, Offset(3)))
    assert future.log_end_offset == 3
    for at in range(3, 12):
        follower.append(sent(at, b"other", 1), NOW)
    made.carry_out()
    assert made.here.path == "/d2"
    assert made.values() == [*numbered(3), *[b"other"] * 9]


def test_cut_is_written_down_before_more_is_copied() -> None:
    made = following(10)
    made.move()
    made.step(2)
    move = made.moves.moves[ORDERS]

    async def sync() -> None:
        await move._sync()
        await made.host.directories.commit(move.target, move.target.checkpoint_writes())

    asyncio.run(sync())
    assert b"orders 0 5" in made.disk.read("/d2/recovery-point-offset-checkpoint")
    made.broker.publish(led(1, leader=2, configs=SMALL))
    Follower(made.host, made.partition).cut(DivergingEpoch(0, Offset(3)))
    made.step()
    assert b"orders 0 3" in made.disk.read("/d2/recovery-point-offset-checkpoint")
    assert made.moves.moves[ORDERS].future.log_end_offset == 3


# -- failures ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["write", "sync", "rename"])
def test_target_that_fails_leaves_the_partition_where_it_is(kind: str) -> None:
    made = mover()
    made.move()
    made.step()
    assert made.disk is not None
    made.disk.fail(kind, path_contains="/d2/", times=99)  # type: ignore[arg-type]
    made.carry_out()
    assert made.there.is_failed and not made.here.is_failed
    assert made.here.path == "/d1" and made.values() == numbered(20)
    assert made.moves.moves == {} and made.there.future_logs == {}
    made.append(b"goes on")


def test_full_target_leaves_the_partition_where_it_is() -> None:
    made = mover()
    made.move()
    assert made.disk is not None
    made.disk.fail("write", error=errno.ENOSPC, path_contains="-future/", times=99)
    made.carry_out()
    assert made.there.is_failed and made.values() == numbered(20)


def test_unreadable_source_goes_offline_and_keeps_the_future_log() -> None:
    made = mover()
    made.move()
    made.step()
    assert made.disk is not None
    made.disk.fail("read", path_contains="/d1/", times=99)
    made.carry_out()
    assert made.here.is_failed and not made.there.is_failed
    assert made.partition.offline is not None and made.moves.moves == {}
    assert list(made.there.future_logs) == [ORDERS]
    made.disk.heal()
    made.disk.kill()
    made.disk.restart()
    again = made.again(led(1, configs=SMALL))
    assert list(again.moves.moves) == [ORDERS]
    again.carry_out()
    assert again.here.path == "/d2" and again.values() == numbered(20)


def test_source_that_cannot_be_left_goes_offline_and_the_partition_does_not() -> None:
    made = mover()
    made.move()
    assert made.disk is not None
    made.disk.fail("rename", path_contains="/d1/", times=99)
    made.carry_out()
    assert made.here.path == "/d2" and made.partition.offline is None
    assert made.there.is_failed
    made.append(b"goes on")
    made.partition.log.flush()
    # Both have the log now; the older one has not grown, whatever the controller believes.
    made.disk.heal()
    made.disk.kill()
    made.disk.restart()
    again = made.again(led(1, configs=SMALL, directory=made.host.directories.all[0].directory_id))
    assert again.here.path == "/d2" and again.values() == [*numbered(20), b"goes on"]
    assert [name[-6:] for name in again.names("/d1")] == ["-stray"]


def test_error_during_a_copy_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    made = mover()
    made.move()
    move = made.moves.moves[ORDERS]
    copy, faults = move._copy, [CorruptBatch("once"), CorruptBatch("twice")]
    waited: list[int] = []

    def failing() -> int:
        if faults:
            raise faults.pop()
        return copy()

    async def pause(wait_ms: int) -> None:
        waited.append(wait_ms)

    monkeypatch.setattr(move, "_copy", failing)
    monkeypatch.setattr(move, "_pause", pause)
    made.carry_out()
    assert waited == [50, 100]
    assert made.here.path == "/d2" and made.values() == numbered(20)


def test_move_of_a_damaged_log_has_it_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = mover()
    made.move()
    move = made.moves.moves[ORDERS]
    suspected: list[int] = []
    monkeypatch.setattr(made.host, "suspect", lambda _, offset: suspected.append(int(offset)))
    file = made.partition.log.segments[0].file
    (sound,) = file.pread(1, 80)
    file.pwrite(bytes([sound ^ 1]), 80)

    async def repair(wait_ms: int) -> None:
        file.pwrite(bytes([sound]), 80)

    monkeypatch.setattr(move, "_pause", repair)
    made.carry_out()
    assert suspected == [0]
    assert made.here.path == "/d2" and made.values() == numbered(20)


def test_waiting_move_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "RETRY_MS", 60_000)
    made = mover()
    made.move()
    move = made.moves.moves[ORDERS]

    def failing() -> int:
        raise CorruptBatch("always")

    monkeypatch.setattr(move, "_copy", failing)

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(made.moves.carry_out(move))
            await asyncio.sleep(0.01)
            made.moves.alter(ORDERS, made.here.path)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert made.moves.moves == {} and made.there.future_logs == {}


def test_one_move_that_fails_leaves_the_others_alone() -> None:
    made = Mover(paths=("/d1", "/d2", "/d3"))
    both = {index: partition_of(1) for index in range(3)}
    made.broker.start(image_of({"orders": (1, both)}))
    made.moves.alter(TopicPartition("orders", 0), "/d2")
    made.moves.alter(TopicPartition("orders", 1), "/d3")
    assert made.disk is not None
    made.disk.fail("sync", path_contains="/d3/", times=99)

    async def work() -> None:
        ready = asyncio.Event()
        task = asyncio.ensure_future(made.moves.run(ready.set))
        await ready.wait()
        while made.moves.moves:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(work(), 60))
    placed = {p.index: p.directory.path for p in made.host.partitions if p.offline is None}
    assert placed[0] == "/d2" and made.host.directories.all[2].is_failed


# -- restarts ------------------------------------------------------------


def test_move_continues_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 300)
    made = mover()
    made.move()
    made.step(4)
    got = made.moves.moves[ORDERS].future.log_end_offset
    assert 0 < got < 20
    made.broker.stop()
    again = made.again(led(1, configs=SMALL))
    move = again.moves.moves[ORDERS]
    assert move.future.log_end_offset == got
    again.append(b"more")
    again.carry_out()
    assert again.here.path == "/d2" and again.values() == [*numbered(20), b"more"]


def test_future_log_with_more_than_its_source_is_cut_at_the_start() -> None:
    made = mover(4)
    made.partition.log.flush()
    made.append(*numbered(6, 4))
    made.move()
    made.step(2)
    made.moves.moves[ORDERS].future.flush()
    assert made.disk is not None
    made.disk.crash(Keep.NOTHING)
    made.disk.restart()
    again = made.again(led(1, configs=SMALL))
    assert again.values() == numbered(4)
    assert again.moves.moves[ORDERS].future.log_end_offset == 4
    again.append(b"other")
    again.carry_out()
    assert again.values() == [*numbered(4), b"other"]


def test_future_log_of_another_history_is_cut_at_the_start() -> None:
    made = mover(4)
    made.broker.publish(led(1, configs=SMALL))
    made.append(*numbered(6, 4))
    made.move()
    made.step(2)
    move = made.moves.moves[ORDERS]
    # The source loses epoch 1 and writes in epoch 2 before the logs are compared.
    made.partition.log.truncate_to(Offset(4))
    made.broker.publish(led(2, configs=SMALL))
    made.append(*[b"other"] * 8)
    move.align()
    assert move.future.log_end_offset == 4
    made.carry_out()
    assert made.values() == [*numbered(4), *[b"other"] * 8]


def test_future_log_without_a_partition_is_deleted_at_the_start() -> None:
    made = mover()
    made.move()
    made.broker.stop()
    again = made.again(image_of({}))
    assert again.moves.moves == {}
    assert [name[-7:] for name in again.names("/d2")] == ["-delete"]


def test_future_log_of_an_older_topic_is_deleted_at_the_start() -> None:
    made = mover()
    made.move()
    made.broker.stop()
    again = made.again(image_of({"orders": (9, {0: partition_of(1)})}))
    assert again.moves.moves == {}
    assert "future" not in str(again.names("/d2"))


def test_future_log_beside_its_own_log_is_deleted_at_the_start() -> None:
    made = mover()
    made.move()
    made.broker.stop()
    future = next(iter(made.names("/d2")))
    made.disk.rename(f"/d2/{future}", f"/d1/{future}")
    again = made.again(led(1, configs=SMALL))
    assert again.moves.moves == {} and again.here.future_logs == {}
    assert again.values() == numbered(20)


def test_future_log_whose_log_is_in_a_lost_directory_is_kept() -> None:
    made = mover()
    made.move()
    home = made.here.directory_id
    made.broker.stop()
    assert made.disk is not None
    made.disk.fail("write", error=errno.EROFS, path_contains="/d1/.probe", times=1)
    again = made.again(led(1, configs=SMALL, directory=home))
    assert [each.path for each in again.host.directories.online] == ["/d2"]
    assert list(again.host.directories.all[0].future_logs) == [ORDERS]
    assert again.moves.moves == {}
    again.broker.stop()
    third = made.again(led(2, configs=SMALL, directory=home))
    third.carry_out()
    assert third.here.path == "/d2" and third.values() == numbered(20)


def test_image_decides_between_two_logs_alike() -> None:
    made = Broker()
    made.start(led(3))
    first, second = made.directories
    config = made.replicas._log_config(ORDERS)
    twin = second.create_log(ORDERS, Uuid(bytes(15) + bytes([101])), config).log
    twin.start_epoch(3)
    made.stop()
    again = made.again(led(4, directory=second.directory_id))
    found = again.partitions.get(*ORDERS)
    assert found is not None and found.directory.path == "/d2"
    assert first.path == "/d1"
