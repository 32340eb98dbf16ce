"""Rounds of cleaning over a directory's logs, and retention carried out on real logs."""

import pytest
from compaction_world import CONFIG, FixedClock, World
from msgspec.structs import replace

from ottla.protocol.faults import CorruptBatch, StorageFailed
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.storage.cleaner import OffsetMapTooSmall
from ottla.storage.log import Log
from ottla.storage.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.log_config import LogConfig
from ottla.storage.log_maintenance import delete_old_segments
from simulation.random import SimRandom

T0 = TopicPartition("t", 0)
NOW = Millis(1_000_000)


def cleaner_of(world: World, slots: int = 1000) -> LogCleaner:
    cleaner = LogCleaner(world.disk, "/data", SimRandom(1), CleanerSettings(24 * slots))
    assert cleaner.load()
    return cleaner


def clean_all(cleaner: LogCleaner, logs: dict[TopicPartition, Log]) -> list[TopicPartition]:
    """Clean until nothing is worth it; return in which order."""
    order = []
    while (choice := cleaner.choose(logs, NOW)) is not None:
        assert sum(cleaner.run(choice, NOW)) > 0
        order.append(choice.partition)
        assert len(order) < 10
    return order


def dirty_world(config: LogConfig = CONFIG) -> World:
    world = World(config)
    for number in range(3):
        world.put((b"a", b"%d" % number))
    world.roll()
    return world


def test_cleaned_log_is_not_chosen_again_even_after_a_restart() -> None:
    world = dirty_world()
    assert clean_all(cleaner_of(world), {T0: world.log}) == [T0]
    assert world.pairs() == [(2, b"a", b"2")]
    again = cleaner_of(world)
    assert dict(again.checkpoint) == {T0: 3}
    assert again.choose({T0: world.log}, NOW) is None
    assert world.disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_log_that_is_not_compacted_is_never_chosen() -> None:
    world = dirty_world(replace(CONFIG, is_compacted=False, is_deleted=True))
    assert cleaner_of(world).choose({T0: world.log}, NOW) is None


def test_log_below_the_dirty_ratio_is_not_chosen() -> None:
    world = dirty_world(replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    for number in range(9):
        world.put((b"k%d" % number, b"x" * 50))
    world.roll()
    cleaner = cleaner_of(world)
    clean_all(cleaner, {T0: world.log})
    world.put((b"a", b"3"))
    world.roll()
    assert cleaner.choose({T0: world.log}, NOW) is None
    overdue = replace(world.config, max_compaction_lag_ms=10)
    world.log.configure(overdue)
    late = Millis(world.clock.wall + 100)
    choice = cleaner.choose({T0: world.log}, late)
    assert choice is not None
    assert choice.dirty.first_dirty == 12


def test_damaged_log_is_not_chosen_again() -> None:
    world = dirty_world()
    world.disk.rot("/data/t-0/00000000000000000000.log", 65)
    cleaner = cleaner_of(world)
    choice = cleaner.choose({T0: world.log}, NOW)
    assert choice is not None
    with pytest.raises(CorruptBatch):
        list(cleaner.run(choice, NOW))
    assert "CRC" in cleaner.uncleanable[T0]
    assert cleaner.choose({T0: world.log}, NOW) is None
    assert dict(cleaner.checkpoint) == {}


def test_log_with_a_batch_too_large_for_the_map_is_not_chosen_again() -> None:
    world = World()
    world.put(*[(b"k%d" % number, b"1") for number in range(9)])
    world.roll()
    cleaner = cleaner_of(world, slots=4)
    choice = cleaner.choose({T0: world.log}, NOW)
    assert choice is not None
    with pytest.raises(OffsetMapTooSmall):
        list(cleaner.run(choice, NOW))
    assert T0 in cleaner.uncleanable


def test_corrupt_checkpoint_makes_all_logs_dirty() -> None:
    world = dirty_world()
    clean_all(cleaner_of(world), {T0: world.log})
    world.disk.rot("/data/cleaner-offset-checkpoint", 0)
    cleaner = LogCleaner(world.disk, "/data", SimRandom(1), CleanerSettings(2400))
    assert cleaner.load() is False
    assert clean_all(cleaner, {T0: world.log}) == [T0]
    assert world.pairs() == [(2, b"a", b"2")]


def test_after_a_truncation_new_records_count_as_dirty() -> None:
    world = dirty_world()
    cleaner = cleaner_of(world)
    clean_all(cleaner, {T0: world.log})
    world.log.truncate_to(Offset(0))
    cleaner.truncated(T0, Offset(0))
    world.put((b"b", b"1"))
    world.put((b"b", b"2"))
    world.roll()
    assert clean_all(cleaner, {T0: world.log}) == [T0]
    assert world.pairs() == [(1, b"b", b"2")]


def test_deleted_log_is_removed_from_the_checkpoint() -> None:
    world = dirty_world()
    cleaner = cleaner_of(world)
    clean_all(cleaner, {T0: world.log})
    cleaner.forget(T0)
    assert dict(cleaner_of(world).checkpoint) == {}


def test_checkpoint_write_failure_fails_the_directory() -> None:
    world = dirty_world()
    cleaner = cleaner_of(world)
    choice = cleaner.choose({T0: world.log}, NOW)
    assert choice is not None
    world.disk.fail("rename", path_contains="cleaner-offset-checkpoint")
    with pytest.raises(StorageFailed):
        list(cleaner.run(choice, NOW))


# -- retention on real logs --------------------------------------------------------


def aged(**settings: object) -> World:
    world = World(replace(CONFIG, is_compacted=False, is_deleted=True, **settings))
    for number in range(4):
        world.put((b"k%d" % number, b"x" * 20), timestamp=1000 + number * 100)
        world.roll()
    return world


def test_old_segments_are_deleted_and_the_log_starts_after_them() -> None:
    world = aged(retention_ms=250)
    plan = delete_old_segments(world.log, Millis(1360))
    assert plan.base_offsets == (0, 1)
    assert (world.log.log_start_offset, [o for o, _, _ in world.pairs()]) == (2, [2, 3])
    assert delete_old_segments(world.log, Millis(1360)).is_empty


def test_offsets_continue_after_all_segments_are_deleted() -> None:
    world = aged(retention_ms=10)
    world.put((b"last", b"1"), timestamp=2000)
    delete_old_segments(world.log, Millis(5000))
    assert (world.log.log_start_offset, world.log.log_end_offset) == (5, 5)
    assert world.put((b"next", b"1")) == 5


def test_retention_by_size_keeps_the_limit() -> None:
    world = aged(retention_ms=-1)
    sizes = [segment.size for segment in world.log.segments]
    world.log.configure(replace(world.log.config, retention_bytes=sizes[1] * 2))
    delete_old_segments(world.log, Millis(0))
    assert world.log.size == sizes[1] * 2


def test_compact_and_delete_keep_the_newest_of_the_young_records() -> None:
    world = World(replace(CONFIG, is_deleted=True, retention_ms=350, segment_bytes=150))
    for number in range(6):
        world.put((b"ab"[number % 2 : number % 2 + 1], b"%d" % number * 40), timestamp=number * 100)
        world.roll()
    delete_old_segments(world.log, Millis(600))
    world.clean(now=600)
    assert [(o, k) for o, k, _ in world.pairs()] == [(4, b"a"), (5, b"b")]
    assert world.log.log_start_offset == 3
    delete_old_segments(world.log, Millis(850))
    assert (world.log.log_start_offset, len(world.pairs())) == (5, 1)


def test_maintenance_removes_files_later_and_expires_idle_producers() -> None:
    world = aged(retention_ms=250, producer_id_expiration_ms=50, file_delete_delay_ms=1000)
    assert isinstance(world.clock, FixedClock)
    world.put((b"z", b"1"), pid=5, timestamp=1300)
    plan = delete_old_segments(world.log, Millis(1360))
    assert (len(plan.base_offsets), world.log.purge_deleted()) == (2, 0)
    assert world.log.producers.expire(Millis(1360)) == 0
    world.clock.mono += 1000
    assert world.log.purge_deleted() >= 2
    assert world.log.producers.expire(Millis(world.clock.wall + 50)) == 1


def test_producer_keeps_its_sequence_when_all_it_wrote_is_deleted() -> None:
    world = aged(retention_ms=10)
    world.put((b"z", b"1"), pid=5, timestamp=2000)
    delete_old_segments(world.log, Millis(5000))
    assert world.log.producers.last_sequence(5) == 0
    world.put((b"z", b"2"), pid=5)
