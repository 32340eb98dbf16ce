"""A shard: decide, append, replay, reply when committed; load and close."""

from collections.abc import Sequence
from typing import Any

import pytest
from coordinator_harness import FakeClock, FakeLog
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ottla.coordinators.decision import (
    LATER,
    NOTHING,
    Answer,
    CancelTimer,
    Decision,
    Origin,
    ReplyFuture,
    SetTimer,
    TimerKey,
)
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.shard import TIMERS_PER_TURN, Shard, ShardSettings, ShardState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CorruptBatch,
    Fault,
    InvalidRecord,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    RecordTooLarge,
    StorageFailed,
)
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.trusted_time import Times


def put(name: str, number: int | None) -> CoordinatorRecord:
    value = None if number is None else Versioned(OffsetCommitValue(offset=number), 3)
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t"), value)


class Register:
    """Numbers by name; what a transaction writes takes effect when it commits."""

    def __init__(self) -> None:
        self.numbers: Map[str, int] = Map()
        self.open: dict[int, list[CoordinatorRecord]] = {}
        self.rung: list[TimerKey] = []
        self.kept: list[ReplyFuture] = []
        self.origins: list[Origin] = []

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        self.origins.append(origin)
        if origin.producer is not None:
            self.open.setdefault(origin.producer.id, []).append(record)
            return
        self._take(record)

    def _take(self, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        if record.value is None:
            if record.key.group in self.numbers:
                self.numbers = self.numbers.delete(record.key.group)
            return
        assert isinstance(record.value.message, OffsetCommitValue)
        self.numbers = self.numbers.set(record.key.group, record.value.message.offset)

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        for record in self.open.pop(producer.id, []):
            if marker.is_commit:
                self._take(record)

    def view(self) -> Map[str, int]:
        return self.numbers

    def on_loaded(self, now: Millis) -> Decision:
        return Decision(timers=[SetTimer(("sweep",), 1000)])

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        self.rung.append(key)
        return NOTHING

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        kept, self.kept = self.kept, []
        return kept


class Bench:
    def __init__(self, log: FakeLog | None = None, **changes: Any) -> None:
        self.log = log or FakeLog()
        self.clock = FakeClock()
        self.machine = Register()
        self.lost = 0
        self.shard = Shard(
            "t-0",
            LeaderEpoch(7),
            self.log,
            self.machine,
            ShardSettings(self.clock, decode_group_record, **changes),
        )
        self.shard.on_lost = self._on_lost

    def _on_lost(self) -> None:
        self.lost += 1

    def load(self) -> "Bench":
        while not self.shard.load_step():
            pass
        return self

    def submit(self, *records: CoordinatorRecord, **fields: Any) -> RecordedReply:
        future = RecordedReply()
        self.shard.submit(lambda m, now: Decision(records, **{"reply": "ok", **fields}), future)
        return future


def test_a_reply_leaves_when_its_records_are_committed() -> None:
    bench = Bench(FakeLog(follows=False)).load()
    future = bench.submit(put("a", 1))
    assert not future.is_done
    assert bench.machine.numbers == Map({"a": 1})
    bench.log.commit(0)
    assert not future.is_done
    bench.log.commit()
    assert future.reply == "ok"


def test_a_reply_without_records_waits_for_what_it_could_have_seen() -> None:
    bench = Bench(FakeLog(follows=False)).load()
    first = bench.submit(put("a", 1))
    second = bench.submit()
    assert not second.is_done
    bench.log.commit()
    assert first.reply == second.reply == "ok"
    assert bench.submit().reply == "ok"


def test_committed_view_shows_only_committed_state() -> None:
    bench = Bench(FakeLog(follows=False)).load()
    bench.submit(put("a", 1))
    bench.submit(put("a", 2))
    assert bench.shard.committed() == Map()
    bench.log.commit(1)
    assert bench.shard.committed() == Map({"a": 1})
    bench.log.commit(2)
    assert bench.shard.committed() == Map({"a": 2})


def test_records_of_one_decision_are_one_batch_of_the_epoch() -> None:
    bench = Bench().load()
    bench.submit(put("a", 1), put("b", 2))
    assert len(bench.log.batches) == 1
    assert bench.log.epochs == [7]
    assert [origin.offset for origin in bench.machine.origins] == [0, 1]


def test_a_decision_that_may_be_split_fits_the_topic() -> None:
    bench = Bench().load()
    bench.log.batch_bytes_max = 300
    bench.submit(*(put(f"group-{n}", n) for n in range(20)), may_split=True)
    assert len(bench.log.batches) > 1
    assert all(len(batch) <= 300 for batch in bench.log.batches)
    assert len(bench.machine.numbers) == 20
    assert [origin.offset for origin in bench.machine.origins] == list(range(20))


@pytest.mark.parametrize(
    "fault", [NotLeader("gone"), StorageFailed("/d")], ids=["not leader", "disk"]
)
def test_a_failed_append_drops_the_shard(fault: Fault) -> None:
    bench = Bench(FakeLog(follows=False)).load()
    pending = bench.submit(put("a", 1))
    kept = RecordedReply()
    bench.machine.kept.append(kept)
    bench.log.fault = fault
    failed = bench.submit(put("b", 1))
    for future in (pending, kept, failed):
        assert future.fault is not None
        assert future.fault.code is ErrorCode.NOT_COORDINATOR
    assert bench.shard.state is ShardState.CLOSED
    assert bench.lost == 1
    bench.log.commit()
    late = bench.submit()
    assert late.fault is not None and late.fault.code is ErrorCode.NOT_COORDINATOR


def test_rejected_append_changes_nothing_and_the_shard_continues() -> None:
    bench = Bench().load()
    bench.log.fault = NotEnoughReplicas("one of two")
    failed = bench.submit(put("a", 1), timers=[SetTimer(("x",), 1)])
    assert failed.fault is not None
    assert failed.fault.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.machine.numbers == Map()
    bench.log.fault = None
    assert bench.submit(put("a", 1)).reply == "ok"
    bench.clock.advance(10)
    bench.shard.on_due()
    assert bench.machine.rung == []


def test_rejected_records_undo_changes_outside_the_log() -> None:
    bench = Bench().load()
    waiting, other = RecordedReply(), RecordedReply()
    seen: list[ErrorCode] = []

    def refused(fault: Fault) -> Decision:
        seen.append(fault.code)
        return Decision(reply="sorry", answers=[Answer(other, "sorry too")])

    bench.log.fault = RecordTooLarge("far")
    answers = [Answer(waiting, "never")]
    future = bench.submit(put("a", 1), answers=answers, refused=refused)
    assert (future.reply, other.reply) == ("sorry", "sorry too")
    assert not waiting.is_done
    assert seen == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_an_answer_to_an_earlier_request_waits_for_the_commit_too() -> None:
    bench = Bench(FakeLog(follows=False)).load()
    first = bench.submit(reply=LATER)
    assert not first.is_done
    bench.submit(put("a", 1), answers=[Answer(first, "at last")])
    assert not first.is_done
    bench.log.commit()
    assert first.reply == "at last"


def test_fault_raised_by_a_decision_fails_the_request() -> None:
    bench = Bench().load()

    def decide(machine: Register, now: Millis) -> Decision:
        raise InvalidRecord("no")

    future = RecordedReply()
    bench.shard.submit(decide, future)
    assert future.fault is not None and future.fault.code is ErrorCode.INVALID_RECORD
    assert bench.shard.state is ShardState.ACTIVE


def test_a_bug_in_a_decision_closes_the_shard() -> None:
    bench = Bench().load()

    def decide(machine: Register, now: Millis) -> Decision:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        bench.shard.submit(decide, RecordedReply())
    assert bench.shard.state is ShardState.CLOSED


def test_commit_timeout_is_reported_to_the_client() -> None:
    bench = Bench(FakeLog(follows=False), write_timeout_ms=500).load()
    future = bench.submit(put("a", 1))
    assert bench.shard.next_due() == bench.clock.mono + 500
    bench.clock.advance(499)
    bench.shard.on_due()
    assert not future.is_done
    bench.clock.advance(1)
    bench.shard.on_due()
    assert future.fault is not None
    assert future.fault.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.log.commit()
    assert bench.shard.committed() == Map({"a": 1})


def test_timers_fire_once_and_can_be_moved() -> None:
    bench = Bench().load()
    bench.submit(timers=[SetTimer(("a",), 100), SetTimer(("b",), 200), SetTimer(("c",), 50)])
    bench.submit(timers=[SetTimer(("a",), 300), CancelTimer(("c",)), SetTimer(("b",), 10)])
    bench.clock.advance(100)
    bench.shard.on_due()
    assert bench.machine.rung == [("b",)]
    bench.clock.advance(200)
    bench.shard.on_due()
    bench.shard.on_due()
    assert bench.machine.rung == [("b",), ("a",)]
    bench.clock.advance(10_000)
    bench.shard.on_due()
    assert bench.machine.rung[2:] == [("sweep",)]


def test_many_due_timers_fire_in_turns() -> None:
    bench = Bench().load()
    count = 2 * TIMERS_PER_TURN + 1
    bench.submit(timers=[SetTimer((f"t{number}",), 10) for number in range(count)])
    bench.clock.advance(10)

    turns = 0
    while (due := bench.shard.next_due()) is not None and due <= bench.clock.monotonic():
        before = len(bench.machine.rung)
        bench.shard.on_due()
        turns += 1
        assert len(bench.machine.rung) - before <= TIMERS_PER_TURN

    assert (turns, len(bench.machine.rung)) == (3, count)


def test_requests_while_loading_return_load_in_progress() -> None:
    bench = Bench()
    future = bench.submit(put("a", 1))
    assert future.fault is not None
    assert future.fault.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(Fault):
        bench.shard.committed()
    assert bench.log.batches == []


def test_a_load_is_in_steps_and_shows_committed_state_alone() -> None:
    first = Bench(FakeLog(follows=False)).load()
    for number in range(10):
        first.submit(put("a", number), put(f"only-{number}", number))
    first.log.commit(12)
    second = Bench(first.log, load_bytes=200)
    steps = 0
    while not second.shard.load_step():
        steps += 1
    assert steps >= 5
    assert second.machine.numbers == first.machine.numbers
    assert second.shard.committed() == first.shard.committed()
    first.log.commit()
    assert second.shard.committed() == second.machine.numbers


def test_damaged_log_fails_the_load() -> None:
    bench = Bench().load()
    bench.submit(put("a", 1))
    damaged = bytearray(bench.log.batches[0])
    damaged[-3] ^= 1
    bench.log.batches[0] = bytes(damaged)
    again = Bench(bench.log)
    with pytest.raises(CorruptBatch):
        again.load()
    assert again.shard.state is ShardState.CLOSED
    assert bench.log.damaged_at == [0], "the stored batches are checked at once"


@pytest.mark.parametrize(("at", "offset"), [(1, 9), (2, 0)])
def test_load_of_batches_out_of_order_fails(at: int, offset: int) -> None:
    bench = Bench().load()
    for number in range(4):
        bench.submit(put("a", number))
    damaged = bytearray(bench.log.batches[at])
    damaged[:8] = offset.to_bytes(8, "big")
    bench.log.batches[at] = bytes(damaged)
    again = Bench(bench.log)
    with pytest.raises(CorruptBatch):
        again.load()
    assert bench.log.damaged_at == [0]


def test_load_that_cannot_reach_the_log_does_not_suspect_damage() -> None:
    bench = Bench().load()
    bench.submit(put("a", 1))
    bench.log.log_start = Offset(-5)
    again = Bench(bench.log)
    with pytest.raises(OffsetOutOfRange):
        again.load()
    assert bench.log.damaged_at == []


def test_a_record_of_a_later_version_is_stepped_over() -> None:
    bench = Bench().load()
    bench.submit(put("a", 1))
    from ottla.protocol.records.reader import Record
    from ottla.protocol.records.writer import build_batch

    alien = build_batch([Record(Offset(0), Millis(0), b"\x00\x7fwhat", b"\x00\x00")])
    bench.log.append(alien, epoch=LeaderEpoch(7), now=Millis(0))
    again = Bench(bench.log).load()
    assert again.machine.numbers == Map({"a": 1})
    assert again.shard.end == 2


PRODUCER = Producer(5, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_transactional_offsets_take_effect_with_the_marker(is_commit: bool) -> None:
    bench = Bench().load()
    bench.submit(put("a", 1), producer=PRODUCER)
    assert bench.machine.numbers == Map()
    assert read_header(bench.log.batches[0]).is_transactional
    future = RecordedReply()
    bench.shard.end_transaction(PRODUCER, EndTxnMarker(is_commit, 3), future)
    assert future.is_done and future.fault is None
    assert bench.machine.numbers == (Map({"a": 1}) if is_commit else Map())
    assert Bench(bench.log).load().machine.numbers == bench.machine.numbers


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("txn"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("end"), st.booleans(), st.none()),
    st.tuples(st.just("commit"), st.integers(0, 12), st.none()),
    st.tuples(st.just("refuse"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("reload"), st.none(), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_replaying_the_log_gives_the_live_state(steps: list[tuple[str, Any, Any]]) -> None:
    bench = Bench(FakeLog(follows=False), load_bytes=100).load()
    for kind, first, second in steps:
        if kind == "put":
            bench.submit(put(first, second))
        elif kind == "txn":
            bench.submit(put(first, second), producer=PRODUCER)
        elif kind == "end":
            bench.shard.end_transaction(PRODUCER, EndTxnMarker(first, 0), RecordedReply())
        elif kind == "commit":
            upto = min(bench.log.log_end, max(first, bench.log.high_watermark))
            bench.log.commit(upto)
        elif kind == "refuse":
            bench.log.fault = NotEnoughReplicas("no")
            bench.submit(put(first, second))
            bench.log.fault = None
        else:
            bench = Bench(bench.log, load_bytes=100).load()
        again = Bench(bench.log, load_bytes=100).load()
        assert again.machine.numbers == bench.machine.numbers
        assert again.machine.open == bench.machine.open
        assert again.shard.committed() == bench.shard.committed()
        assert again.shard.end == bench.log.log_end
