"""Cleaning rounds over the logs of a directory, and retention on real logs."""

import pytest
from compacted_log import CONFIG, CompactedLog, FixedClock
from msgspec.structs import replace

from ottla.protocol.faults import CorruptBatch, InvalidRecord, StorageFailed
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.storage.cleaner.compactor import OffsetMapTooSmall
from ottla.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_maintenance import delete_old_segments
from simulation.random import SimRandom

T0 = TopicPartition("t", 0)
NOW = Millis(1_000_000)


def cleaner_of(compacted: CompactedLog, slots: int = 1000) -> LogCleaner:
    cleaner = LogCleaner(compacted.disk, "/data", SimRandom(1), CleanerSettings(24 * slots))
    assert cleaner.load()
    return cleaner


def clean_all(cleaner: LogCleaner, logs: dict[TopicPartition, Log]) -> list[TopicPartition]:
    """Clean until no log is worth cleaning; return the order."""
    order = []
    while (choice := cleaner.choose(logs, NOW)) is not None:
        assert sum(cleaner.run(choice, NOW)) > 0
        order.append(choice.partition)
        assert len(order) < 10
    return order


def dirty_log(config: LogConfig = CONFIG) -> CompactedLog:
    compacted = CompactedLog(config)
    for number in range(3):
        compacted.put((b"a", b"%d" % number))
    compacted.roll()
    return compacted


def test_cleaned_log_is_not_chosen_again_even_after_a_restart() -> None:
    compacted = dirty_log()
    assert clean_all(cleaner_of(compacted), {T0: compacted.log}) == [T0]
    assert compacted.pairs() == [(2, b"a", b"2")]
    again = cleaner_of(compacted)
    assert dict(again.checkpoint) == {T0: 3}
    assert again.choose({T0: compacted.log}, NOW) is None
    assert compacted.disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_log_that_is_not_compacted_is_never_chosen() -> None:
    compacted = dirty_log(replace(CONFIG, is_compacted=False, is_deleted=True))
    assert cleaner_of(compacted).choose({T0: compacted.log}, NOW) is None


def test_log_below_the_dirty_ratio_is_not_chosen() -> None:
    compacted = dirty_log(replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    for number in range(9):
        compacted.put((b"k%d" % number, b"x" * 50))
    compacted.roll()
    cleaner = cleaner_of(compacted)
    clean_all(cleaner, {T0: compacted.log})
    compacted.put((b"a", b"3"))
    compacted.roll()
    assert cleaner.choose({T0: compacted.log}, NOW) is None
    overdue = replace(compacted.config, max_compaction_lag_ms=10)
    compacted.log.configure(overdue)
    late = Millis(compacted.clock.wall + 100)
    choice = cleaner.choose({T0: compacted.log}, late)
    assert choice is not None
    assert choice.dirty.first_dirty == 12


def test_backlog_is_the_dirty_bytes_of_all_logs_worth_cleaning() -> None:
    first, second = dirty_log(), dirty_log()
    second.put((b"b", b"1" * 100))
    second.roll()
    clean = dirty_log(replace(CONFIG, min_cleanable_dirty_ratio=1.0))
    logs = {T0: first.log, TopicPartition("t", 1): second.log, TopicPartition("t", 2): clean.log}
    choice = cleaner_of(first).choose(logs, NOW)
    assert choice is not None
    sealed = [segment for log in (first.log, second.log) for segment in log.segments[:-1]]
    assert choice.backlog == sum(segment.size for segment in sealed)


def test_damaged_log_is_not_chosen_again() -> None:
    compacted = dirty_log()
    compacted.disk.rot("/data/t-0/00000000000000000000.log", 65)
    cleaner = cleaner_of(compacted)
    choice = cleaner.choose({T0: compacted.log}, NOW)
    assert choice is not None
    with pytest.raises(CorruptBatch):
        list(cleaner.run(choice, NOW))
    assert "CRC" in cleaner.uncleanable[T0]
    assert cleaner.choose({T0: compacted.log}, NOW) is None
    assert dict(cleaner.checkpoint) == {}


def test_log_with_a_batch_too_large_for_the_map_is_not_chosen_again() -> None:
    compacted = CompactedLog()
    compacted.put(*[(b"k%d" % number, b"1") for number in range(9)])
    compacted.roll()
    cleaner = cleaner_of(compacted, slots=4)
    choice = cleaner.choose({T0: compacted.log}, NOW)
    assert choice is not None
    with pytest.raises(OffsetMapTooSmall):
        list(cleaner.run(choice, NOW))
    assert T0 in cleaner.uncleanable


def test_corrupt_checkpoint_makes_all_logs_dirty() -> None:
    compacted = dirty_log()
    clean_all(cleaner_of(compacted), {T0: compacted.log})
    compacted.disk.rot("/data/cleaner-offset-checkpoint", 0)
    cleaner = LogCleaner(compacted.disk, "/data", SimRandom(1), CleanerSettings(2400))
    assert cleaner.load() is False
    assert clean_all(cleaner, {T0: compacted.log}) == [T0]
    assert compacted.pairs() == [(2, b"a", b"2")]


def test_after_a_truncation_new_records_count_as_dirty() -> None:
    compacted = dirty_log()
    cleaner = cleaner_of(compacted)
    clean_all(cleaner, {T0: compacted.log})
    compacted.log.truncate_to(Offset(0))
    cleaner.truncated(T0, Offset(0))
    # The log ends after the old checkpoint again, which would pass for a true one.
    compacted.put((b"b", b"1"))
    compacted.put((b"b", b"2"))
    compacted.put((b"c", b"1"))
    compacted.put((b"d", b"1"))
    compacted.roll()
    assert clean_all(cleaner, {T0: compacted.log}) == [T0]
    assert [offset for offset, _, _ in compacted.pairs()] == [1, 2, 3]


def test_deleted_log_is_removed_from_the_checkpoint() -> None:
    compacted = dirty_log()
    cleaner = cleaner_of(compacted)
    clean_all(cleaner, {T0: compacted.log})
    cleaner.forget(T0)
    assert dict(cleaner_of(compacted).checkpoint) == {}


def test_checkpoint_write_failure_fails_the_directory() -> None:
    compacted = dirty_log()
    cleaner = cleaner_of(compacted)
    choice = cleaner.choose({T0: compacted.log}, NOW)
    assert choice is not None
    compacted.disk.fail("rename", path_contains="cleaner-offset-checkpoint")
    with pytest.raises(StorageFailed):
        list(cleaner.run(choice, NOW))


# -- retention on real logs --------------------------------------------------------


def aged(**settings: object) -> CompactedLog:
    compacted = CompactedLog(replace(CONFIG, is_compacted=False, is_deleted=True, **settings))
    for number in range(4):
        compacted.put((b"k%d" % number, b"x" * 20), timestamp=1000 + number * 100)
        compacted.roll()
    return compacted


def test_old_segments_are_deleted_and_the_log_starts_after_them() -> None:
    compacted = aged(retention_ms=250)
    plan = delete_old_segments(compacted.log, Millis(1360))
    assert plan.base_offsets == (0, 1)
    assert (compacted.log.log_start_offset, [o for o, _, _ in compacted.pairs()]) == (2, [2, 3])
    assert delete_old_segments(compacted.log, Millis(1360)).is_empty


def test_offsets_continue_after_all_segments_are_deleted() -> None:
    compacted = aged(retention_ms=10)
    compacted.put((b"last", b"1"), timestamp=2000)
    delete_old_segments(compacted.log, Millis(5000))
    assert (compacted.log.log_start_offset, compacted.log.log_end_offset) == (5, 5)
    assert compacted.put((b"next", b"1")) == 5


def test_retention_by_size_keeps_the_limit() -> None:
    compacted = aged(retention_ms=-1)
    sizes = [segment.size for segment in compacted.log.segments]
    compacted.log.configure(replace(compacted.log.config, retention_bytes=sizes[1] * 2))
    delete_old_segments(compacted.log, Millis(0))
    assert compacted.log.size == sizes[1] * 2


def test_compact_and_delete_keep_the_newest_of_the_young_records() -> None:
    compacted = CompactedLog(replace(CONFIG, is_deleted=True, retention_ms=350, segment_bytes=150))
    for number in range(6):
        compacted.put(
            (b"ab"[number % 2 : number % 2 + 1], b"%d" % number * 40), timestamp=number * 100
        )
        compacted.roll()
    delete_old_segments(compacted.log, Millis(600))
    compacted.clean(now=600)
    assert [(o, k) for o, k, _ in compacted.pairs()] == [(4, b"a"), (5, b"b")]
    assert compacted.log.log_start_offset == 3
    delete_old_segments(compacted.log, Millis(850))
    assert (compacted.log.log_start_offset, len(compacted.pairs())) == (5, 1)


def test_maintenance_removes_files_later_and_expires_idle_producers() -> None:
    compacted = aged(retention_ms=250, producer_id_expiration_ms=50, file_delete_delay_ms=1000)
    assert isinstance(compacted.clock, FixedClock)
    compacted.put((b"z", b"1"), pid=5, timestamp=1300)
    plan = delete_old_segments(compacted.log, Millis(1360))
    assert (len(plan.base_offsets), compacted.log.purge_deleted()) == (2, 0)
    assert compacted.log.producers.expire(Millis(1360)) == 0
    compacted.clock.mono += 1000
    assert compacted.log.purge_deleted() >= 2
    assert compacted.log.producers.expire(Millis(compacted.clock.wall + 50)) == 1


def test_producer_keeps_its_sequence_when_all_it_wrote_is_deleted() -> None:
    compacted = aged(retention_ms=10)
    compacted.put((b"z", b"1"), pid=5, timestamp=2000)
    delete_old_segments(compacted.log, Millis(5000))
    assert compacted.log.producers.last_sequence(5) == 0
    compacted.put((b"z", b"2"), pid=5)


def test_oversized_record_stops_cleaning_until_the_topic_allows_it() -> None:
    """As in Kafka 4.4: lowering max.decompressed.message.bytes below stored records stops it."""
    compacted = CompactedLog(replace(CONFIG, max_decompressed_message_bytes=100))
    for number in range(3):
        compacted.put((b"a", b"%d" % number * 500), compression=Compression.GZIP)
    compacted.roll()
    cleaner = cleaner_of(compacted)
    choice = cleaner.choose({T0: compacted.log}, NOW)
    assert choice is not None
    with pytest.raises(InvalidRecord, match=r"max.decompressed.message.bytes is 100"):
        list(cleaner.run(choice, NOW))
    assert cleaner.choose({T0: compacted.log}, NOW) is None
    compacted.log.configure(replace(compacted.log.config, max_decompressed_message_bytes=600))
    assert clean_all(cleaner, {T0: compacted.log}) == [T0]
    assert compacted.pairs() == [(2, b"a", b"2" * 500)]
