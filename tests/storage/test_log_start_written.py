"""A log start that advances is written off the loop; a crash at any step makes no loss of it."""

from collections.abc import Callable, Iterator

import pytest
from log_fixtures import append, contents, fill, reopen

from ottla.protocol.types import Offset
from ottla.storage.log.inventory import FILE_NAME, read_inventory
from ottla.storage.log.log import Log
from simulation.disk import SimDisk
from simulation.platter import Keep

COUNT = 22
KEPT = {"keeps_inventory": True, "high_watermark": Offset(COUNT), "recovery_point": Offset(COUNT)}
STEPS = (
    "opened",
    "advanced",
    "synced",
    "placed",
    "flushed",
    "deleted",
    "purged",
    "advanced again",
    "closed",
)


def written(disk: SimDisk) -> tuple[Log, list[tuple[int, bytes | None]]]:
    """Return a log whose inventory is durable."""
    log = reopen(disk, keeps_inventory=True)
    fill(log, COUNT)
    log.set_high_watermark(Offset(COUNT))
    log.close()
    again = reopen(disk, **KEPT, is_clean=True)
    again.set_high_watermark(Offset(COUNT))
    return again, contents(again)


def steps(log: Log) -> Iterator[str]:
    """Advance the log start as DeleteRecords does, and delete segments as retention does."""
    yield "opened"
    log.advance_log_start(Offset(6))
    yield "advanced"
    assert log.has_unwritten_start
    draft = log.start_draft()
    draft.sync()
    yield "synced"
    log.place_start(draft)
    assert not log.has_unwritten_start
    yield "placed"
    log.flush()
    yield "flushed"
    log.delete_segments([segment.base_offset for segment in log.segments[:2]])
    yield "deleted"
    log.purge_deleted()
    yield "purged"
    log.advance_log_start(Offset(14))
    yield "advanced again"
    log.close()
    yield "closed"


def run_to(log: Log, last: str) -> None:
    for step in steps(log):
        if step == last:
            return


def test_advanced_start_writes_nothing_on_the_calling_thread() -> None:
    disk = SimDisk()
    log, _ = written(disk)
    before = {name: disk.read(f"{log.directory}/{name}") for name in disk.list(log.directory)}
    log.advance_log_start(Offset(6))
    after = {name: disk.read(f"{log.directory}/{name}") for name in disk.list(log.directory)}
    assert after == before
    assert log.log_start_offset == 6


@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.EVERYTHING, Keep.SEEDED])
@pytest.mark.parametrize("step", STEPS)
def test_crash_at_any_step_neither_claims_nor_makes_a_loss(step: str, keep: Keep) -> None:
    disk = SimDisk()
    log, records = written(disk)
    run_to(log, step)
    disk.crash(keep)
    disk.restart()
    again = reopen(disk, **KEPT, is_clean=step == "closed")
    assert not again.report.missing
    assert not again.report.losses
    assert again.log_start_offset in ({0, 6, 8, 14} if step != "closed" else {14})
    assert contents(again) == [each for each in records if each[0] >= again.log_start_offset]
    assert [entry.start_offset for entry in again.epochs.entries][:1] == [again.log_start_offset]


@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.EVERYTHING])
@pytest.mark.parametrize("step", STEPS)
def test_segment_lost_in_a_crash_at_any_step_is_claimed(step: str, keep: Keep) -> None:
    disk = SimDisk()
    log, _ = written(disk)
    run_to(log, step)
    disk.crash(keep)
    disk.restart()
    victim = f"{log.directory}/{16:020d}.log"
    assert disk.exists(victim)
    disk.damage(victim, None)
    again = reopen(disk, **KEPT, is_clean=step == "closed")
    assert [each.start for each in again.report.missing] == [16]


def test_draft_does_not_replace_a_newer_inventory() -> None:
    disk = SimDisk()
    log, _ = written(disk)
    log.advance_log_start(Offset(6))
    draft = log.start_draft()
    log.advance_log_start(Offset(9))
    log.delete_segments([log.segments[0].base_offset])
    draft.sync()
    log.place_start(draft)
    found = read_inventory(disk, log.directory)
    assert found is not None
    assert found.log_start == 9


@pytest.mark.parametrize("change", [lambda log: log.close(), lambda log: log.roll()])
def test_draft_of_a_removed_log_does_nothing(change: Callable[[Log], None]) -> None:
    disk = SimDisk()
    log, _ = written(disk)
    log.advance_log_start(Offset(6))
    draft = log.start_draft()
    change(log)
    disk.rename(log.directory, f"{log.directory}-delete")
    draft.sync()
    assert FILE_NAME not in {name.partition(".next")[0] for name in disk.list("/data")}


def test_next_appends_and_epochs_follow_an_advanced_start() -> None:
    disk = SimDisk()
    log, records = written(disk)
    log.advance_log_start(Offset(10))
    append(log, b"later", epoch=5)
    log.close()
    again = reopen(disk, **KEPT, is_clean=True)
    assert again.log_start_offset == 10
    assert again.epochs.entries[0].start_offset == 10
    assert contents(again)[:-1] == records[10:]


def test_start_of_an_idle_log_is_written_when_it_is_closed() -> None:
    disk = SimDisk()
    log, _ = written(disk)
    log.advance_log_start(Offset(6))
    log.close()
    assert reopen(disk, **KEPT, is_clean=True).log_start_offset == 6
