"""A crash at every disk operation of everything a log does.

Each piece of work is run once to count its operations, then again for each of them: the
process is killed there (the page cache stays) or the power fails there (what was not synced
is kept, lost or torn). The log opened after that must hold a prefix of what was written, with
everything that was synced, and go on working.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from log_fixtures import (
    DIRECTORY,
    NOW,
    HandClock,
    append,
    append_in_txn,
    batch_of,
    contents,
    end_txn,
    open_log,
    segment_bases,
)

from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import OpenMode
from ottla.storage.directory.checkpoints import read_offsets, write_offsets
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimCrash, SimDisk
from simulation.platter import Keep

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
PREALLOCATED = LogConfig(segment_bytes=400, index_interval_bytes=100, preallocate=True)
ORDERS = TopicPartition("orders", 0)
RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
LOG_STARTS = "/data/log-start-offset-checkpoint"
MARKER = "/data/.kafka_cleanshutdown"


@dataclass
class Run:
    """A log, and what its user may rely on: what was written, and which part was synced."""

    disk: SimDisk
    config: LogConfig
    clock: HandClock = field(default_factory=HandClock)
    log: Log = field(init=False)
    written: list[tuple[int, bytes]] = field(default_factory=list)
    # Every content the log had since the last sync: a crash may leave any prefix of any.
    histories: list[list[tuple[int, bytes]]] = field(default_factory=list)
    synced: int = 0
    starts: set[int] = field(default_factory=lambda: {0})
    count: int = 0

    def open(self) -> None:
        is_clean = self.disk.exists(MARKER)
        if is_clean:
            self.disk.remove(MARKER)
            self.disk.sync_dir("/data")
        points = read_offsets(self.disk, RECOVERY_POINTS)
        starts = read_offsets(self.disk, LOG_STARTS)
        self.log = open_log(
            self.disk,
            self.config,
            clock=self.clock,
            checkpoint=LogCheckpoint(
                is_clean=is_clean,
                recovery_point=points.get(ORDERS, 0),
                log_start_offset=starts.get(ORDERS, 0),
                keeps_inventory=True,
            ),
        )
        assert self.log.report.missing == [], "a crash removes nothing that was durable"

    # -- steps -------------------------------------------------------------------------------

    def append(self, times: int = 1) -> None:
        for _ in range(times):
            value = b"value-%06d" % self.count
            self.count += 1
            self.written.append((self.log.log_end_offset, value))
            append(self.log, value)

    def transaction(self) -> None:
        self.written.append((self.log.log_end_offset, b"in txn"))
        append_in_txn(self.log, 5, self.count, b"in txn")
        self.count += 1
        self.written.append((self.log.log_end_offset, b"\0\0\0\0\0\0"))
        end_txn(self.log, 5, commit=False)

    def flush(self) -> None:
        self.log.flush()
        self.synced = self.log.log_end_offset
        self.histories.clear()

    def checkpoint(self) -> None:
        write_offsets(self.disk, RECOVERY_POINTS, {ORDERS: self.log.recovery_point})
        write_offsets(self.disk, LOG_STARTS, {ORDERS: self.log.log_start_offset})

    def truncate(self, offset: int) -> None:
        self.histories.append(list(self.written))
        self.synced = min(self.synced, offset)
        self.written = [each for each in self.written if each[0] < offset]
        self.log.truncate_to(offset)
        # Must happen before anything else is acknowledged.
        self.checkpoint()

    def start_anew(self, offset: int) -> None:
        self.histories.append(list(self.written))
        self.synced = 0
        self.written = []
        self.starts.add(offset)
        self.log.truncate_fully_and_start_at(offset)
        self.checkpoint()

    def delete_oldest(self, count: int) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        bases = segment_bases(self.log)
        self.starts.update([*bases, self.log.log_end_offset][: count + 1])
        self.log.delete_segments(bases[:count])
        self.checkpoint()
        self.clock.pass_ms(self.config.file_delete_delay_ms)
        self.log.purge_deleted()

    def close(self) -> None:
        self.log.close()
        self.synced = self.log.log_end_offset
        write_offsets(self.disk, RECOVERY_POINTS, {ORDERS: self.log.recovery_point})
        file = self.disk.open(MARKER, OpenMode.CREATE)
        file.sync()
        file.close()
        self.disk.sync_dir("/data")

    # -- after a crash -----------------------------------------------------------------------

    def check(self) -> None:
        """Open what is left and compare it with what was promised."""
        self.open()
        log = self.log
        assert log.log_start_offset in self.starts, (log.log_start_offset, self.starts)
        found = contents(log)
        assert log.log_end_offset >= self.synced or log.log_start_offset >= self.synced
        possible = [self.written, *self.histories]
        visible = [[e for e in each if e[0] >= log.log_start_offset] for each in possible]
        assert any(found == each[: len(found)] for each in visible), (found, visible)
        expected = [e for e in self.written if log.log_start_offset <= e[0] < self.synced]
        assert found[: len(expected)] == expected
        self.goes_on(found)

    def goes_on(self, found: list[tuple[int, bytes]]) -> None:
        log = self.log
        at = log.log_end_offset
        append(log, b"after", epoch=9, producer=Producer(77, 0, 0))
        assert append(log, b"after", epoch=9, producer=Producer(77, 0, 0)).is_duplicate
        assert contents(log) == [*found, (at, b"after")]
        assert log.epochs.latest_epoch == 9
        for aborted in log.collect_aborted(log.log_start_offset, log.log_end_offset):
            assert aborted.last_offset < at
        assert log.offset_for_timestamp(NOW) is not None
        log.close()
        again = open_log(self.disk, self.config, checkpoint=LogCheckpoint(is_clean=True))
        # The directory checkpoints the start; compare from where this log begins.
        assert contents(again)[-1] == (at, b"after")


def appends(run: Run) -> None:
    run.append(2)
    run.flush()
    run.append(2)


def rolls(run: Run) -> None:
    run.append(6)
    run.flush()
    run.checkpoint()
    run.append(6)
    run.log.roll()
    run.append()


def transactions(run: Run) -> None:
    for _ in range(4):
        run.transaction()
    run.flush()
    run.transaction()


def truncations(run: Run) -> None:
    run.append(12)
    run.flush()
    run.checkpoint()
    run.truncate(1)
    run.append(4)
    run.flush()
    run.truncate(3)
    run.append()


def truncation_of_the_unsynced(run: Run) -> None:
    run.append(3)
    run.flush()
    run.append(4)
    run.truncate(5)
    run.append(5)


def deletions(run: Run) -> None:
    run.append(12)
    run.flush()
    run.checkpoint()
    run.delete_oldest(2)
    run.append(5)
    run.delete_oldest(1)


def deletion_of_everything(run: Run) -> None:
    run.append(7)
    run.flush()
    run.delete_oldest(len(run.log.segments))
    run.append()


def starting_anew(run: Run) -> None:
    run.append(9)
    run.flush()
    run.start_anew(100)
    run.append(2)


def closing_and_opening(run: Run) -> None:
    run.append(6)
    run.transaction()
    run.close()
    run.open()
    run.append(3)
    run.close()
    run.open()
    run.append()


def recovering(run: Run) -> None:
    """A crash inside the recovery from a crash."""
    run.append(6)
    run.flush()
    run.append(7)
    file = run.log.segments[-1].file
    file.pwrite(bytes(batch_of(b"torn"))[:-3], file.size())
    run.log.flush_plan()
    run.open()
    run.append()


WORK: list[Callable[[Run], None]] = [
    appends,
    rolls,
    transactions,
    truncations,
    truncation_of_the_unsynced,
    deletions,
    deletion_of_everything,
    starting_anew,
    closing_and_opening,
    recovering,
]


def begin(seed: int, config: LogConfig) -> Run:
    disk = SimDisk(seed)
    disk.make_dirs(DIRECTORY)
    run = Run(disk, config)
    run.open()
    return run


def operations_of(work: Callable[[Run], None], config: LogConfig) -> int:
    run = begin(0, config)
    before = run.disk.operations
    work(run)
    return run.disk.operations - before


CASES = [(work, CONFIG) for work in WORK]
CASES += [(work, PREALLOCATED) for work in (rolls, deletions, closing_and_opening, recovering)]


def name_of(case: object) -> str:
    if isinstance(case, LogConfig):
        return "preallocated" if case.preallocate else "plain"
    return getattr(case, "__name__", str(case))


@pytest.mark.parametrize(("work", "config"), CASES, ids=name_of)
@pytest.mark.parametrize("ending", ["kill", "nothing", "seeded"])
def test_crash_at_every_operation_leaves_a_prefix_with_everything_synced(
    work, ending, config
) -> None:
    count = operations_of(work, config)
    assert count > 3
    seeds = range(2) if ending == "seeded" else range(1)
    for step in range(1, count + 1):
        for seed in seeds:
            run = begin(seed * 1000 + step, config)
            run.disk.crash_at(step)
            with pytest.raises(SimCrash):
                work(run)
            match ending:
                case "kill":
                    run.disk.kill()
                case "nothing":
                    run.disk.crash(Keep.NOTHING)
                case "seeded":
                    run.disk.crash()
            run.disk.restart()
            run.check()
