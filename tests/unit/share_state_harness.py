"""A shard of the share coordinator over an in-memory log."""

from coordinator_harness import FakeClock, FakeLog

from ottla.coordinators.batches import RecordFound, read_batches
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.coordinators.share_state.machine import ShareStateMachine, ShareStateSettings
from ottla.coordinators.share_state.rules import (
    StateResult,
    StateWrite,
    decide_delete,
    decide_initialize,
    decide_read,
    decide_summary,
    decide_write,
)
from ottla.coordinators.share_state.state import Run, ShareKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.share_state_records import decode_share_state_record
from ottla.protocol.types import LeaderEpoch, Offset, Uuid

TOPIC = Uuid(bytes(range(16)))
KEY = ShareKey("g", TOPIC, 0)
NONE = ErrorCode.NONE


class Harness:
    """A shard over an in-memory log, which can be loaded again."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.known = {(TOPIC, 0), (TOPIC, 1)}
        self.settings = ShareStateSettings(
            lambda topic, index: (topic, index) in self.known, updates_per_snapshot, cold_ms=1000
        )
        self.log, self.clock = FakeLog(), FakeClock()
        self.shard = self.loaded()

    def loaded(self) -> Shard[ShareStateMachine]:
        settings = ShardSettings(self.clock, decode_share_state_record)
        machine = ShareStateMachine(self.settings)
        shard = Shard("s", LeaderEpoch(1), self.log, machine, settings)
        while not shard.load_step():
            pass
        return shard

    @property
    def machine(self) -> ShareStateMachine:
        return self.shard.machine

    def carry_out(self, decide: object) -> object:
        answers: list[object] = []

        class ReplyFuture:
            def answer(self, reply: object) -> None:
                answers.append(reply)

            def fail(self, fault: object) -> None:
                answers.append(fault)

        self.shard.submit(decide, ReplyFuture())  # type: ignore[arg-type]
        return answers[0]

    def submit(self, decide: object) -> None:
        """Decide without waiting for the reply."""
        self.shard.submit(decide, RecordedReply())  # type: ignore[arg-type]

    def initialize(self, epoch: int = 0, start: int = 0, key: ShareKey = KEY) -> object:
        return self.carry_out(lambda m, now: decide_initialize(m, key, epoch, start, now))

    def read(self, leader_epoch: int, key: ShareKey = KEY) -> StateResult:
        found = self.carry_out(lambda m, now: decide_read(m, key, leader_epoch, now))
        assert isinstance(found, StateResult)
        return found

    def write(
        self, *runs: Run, state: int = 0, leader: int = 0, start: int = 0, key: ShareKey = KEY
    ) -> object:
        write = StateWrite(state, leader, start, 0, runs)
        return self.carry_out(lambda m, now: decide_write(m, key, write, now))

    def summary(self, key: ShareKey = KEY) -> StateResult:
        found = self.carry_out(lambda m, now: decide_summary(m, key))
        assert isinstance(found, StateResult)
        return found

    def delete(self, key: ShareKey = KEY) -> object:
        return self.carry_out(lambda m, now: decide_delete(m, key))

    def kinds(self) -> list[str]:
        return [type(record.key).__name__ for record in self.records()]

    def records(self) -> list[object]:
        return [
            found.record
            for batch in self.log.batches
            for read in read_batches(batch, Offset(0), decode_share_state_record)
            for found in read.found
            if isinstance(found, RecordFound)
        ]
