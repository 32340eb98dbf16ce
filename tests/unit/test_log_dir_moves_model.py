"""Moves and all other operations on a log, in random order, against a list of records."""

import random

import pytest
from moves_fixtures import NOW, ORDERS, Mover, led
from partition_fixtures import batch_of

from ottla.protocol.types import Offset
from ottla.replication.maintenance import log_dir_moves
from ottla.storage.log.log_maintenance import delete_old_segments
from simulation.platter import Keep

pytestmark = pytest.mark.slow

CONFIGS = {"internal.segment.bytes": "400", "retention.bytes": "1500", "file.delete.delay.ms": "0"}
SEEDS = 10
OPERATIONS = 60


class Model:
    """What was written, what was synced, and the earliest start of the log."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.epoch = 0
        self.mover = Mover().start(led(configs=CONFIGS))
        self.written: list[bytes] = []
        self.synced = 0

    def append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            value = b"%d-%d" % (self.epoch, len(self.written))
            self.mover.partition.append(batch_of(value), now=NOW)
            self.written.append(value)

    def flush(self) -> None:
        self.mover.partition.log.flush()
        self.synced = len(self.written)

    def step(self) -> None:
        if self.mover.moves.moves:
            self.mover.step(self.random.randint(1, 3))

    def move(self) -> None:
        self.mover.moves.alter(ORDERS, self.random.choice(["/d1", "/d2"]))

    def trim(self) -> None:
        log = self.mover.partition.log
        at = self.random.randint(log.log_start_offset, log.high_watermark)
        self.mover.partition.delete_records(Offset(at))

    def retain(self) -> None:
        delete_old_segments(self.mover.partition.log, NOW)

    def new_leader_epoch(self) -> None:
        self.epoch += 1
        self.mover.broker.publish(led(self.epoch, configs=CONFIGS))

    def tidy(self) -> None:
        self.mover.partition.log.purge_deleted()
        sum(self.mover.broker.replicas.purge())
        for directory in self.mover.host.directories.all:
            directory.write_checkpoints()

    def restart(self) -> None:
        self.mover.broker.stop()
        self.synced = len(self.written)
        self._again()

    def crash(self) -> None:
        keep = self.random.choice([Keep.NOTHING, Keep.SEEDED, None])
        if keep is None:
            self.mover.disk.kill()
        else:
            self.mover.disk.crash(keep)
        self.mover.disk.restart()
        self._again()
        end = self.mover.partition.log.log_end_offset
        assert end >= self.synced
        del self.written[end:]

    def _again(self) -> None:
        self.epoch += 1
        self.mover = self.mover.again(led(self.epoch, configs=CONFIGS))

    def check(self) -> None:
        log = self.mover.partition.log
        assert log.log_end_offset == len(self.written)
        assert self.mover.values() == self.written[log.log_start_offset :]
        assert log.epochs.latest_epoch in (None, self.epoch) or not self.written
        assert len(self.mover.moves.moves) <= 1
        futures = sum(len(each.future_logs) for each in self.mover.host.directories.all)
        assert futures == len(self.mover.moves.moves)

    def run(self) -> int:
        """Run random steps; return how often the log changed its directory."""
        often = [self.append, self.step, self.step, self.move]
        seldom = [self.flush, self.trim, self.retain, self.new_leader_epoch, self.tidy]
        rarely = [self.restart, self.crash]
        changes, before = 0, self.mover.here.path
        for _ in range(OPERATIONS):
            self.random.choice(self.random.choices([often, seldom, rarely], [12, 4, 1])[0])()
            self.check()
            changes += self.mover.here.path != before
            before = self.mover.here.path
        self.mover.carry_out()
        self.check()
        return changes


@pytest.mark.parametrize("part", range(3))
def test_log_is_what_was_written_after_any_history(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 250)
    changes = [Model(seed).run() for seed in range(part * SEEDS, (part + 1) * SEEDS)]
    assert sum(changes) > SEEDS, "moves happen"
