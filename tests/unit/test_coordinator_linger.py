"""Lingering commits: written together, in order, and answered only when committed."""

import asyncio
from typing import Any

import pytest
from coordinator_harness import FakeClock, FakeLog
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.requests import decide_offset_commit
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import Shard, ShardSettings, ShardState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas, NotLeader
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.reader import read_records
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch


class Bench:
    """One shard of groups with group ``g``. ``held`` counts the requests for a flush."""

    def __init__(self, linger_ms: int = -1, *, follows: bool = False) -> None:
        self.log = FakeLog(follows=follows)
        self.clock = FakeClock()
        self.held = 0
        self.machine = GroupMachine()
        self.shard = Shard(
            "t-0",
            LeaderEpoch(7),
            self.log,
            self.machine,
            ShardSettings(self.clock, decode_group_record, linger_ms=linger_ms),
        )
        self.shard.on_held = self._on_held
        while not self.shard.load_step():
            pass
        self.commit(0)
        self.log.commit()
        self.before = len(self.log.batches)

    def _on_held(self) -> None:
        self.held += 1

    def commit(
        self, offset: int, *, group: str = "g", epoch: int = -1, size: int = 0
    ) -> RecordedReply:
        partition = OffsetCommitRequestPartition(0, offset, committed_metadata="m" * size)
        topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
        request = OffsetCommitRequest(group, epoch, topics=topics)
        future = RecordedReply()
        self.shard.submit(
            lambda machine, now: decide_offset_commit(machine, request, 9, now),
            future,
            may_linger=True,
        )
        return future

    @property
    def written(self) -> list[int]:
        """The number of records in each batch written since."""
        return [read_header(batch).records_count for batch in self.log.batches[self.before :]]

    def offset(self, group: str = "g") -> int | None:
        found = self.machine.offsets.get(group, ("t", 0))
        return None if found is None else found.offset


def code_of(future: RecordedReply) -> ErrorCode:
    assert future.is_done
    if future.fault is not None:
        return future.fault.code
    return ErrorCode(future.reply.topics[0].partitions[0].error_code)


def test_commits_that_come_together_are_written_together() -> None:
    bench = Bench()
    futures = [bench.commit(offset) for offset in (5, 7, 6)]
    assert (bench.written, bench.held, bench.offset()) == ([], 1, 0)
    bench.shard.flush()
    assert bench.written == [3]
    assert bench.offset() == 6, "the last of them counts"
    assert not any(future.is_done for future in futures)
    bench.log.commit()
    assert [code_of(future) for future in futures] == [ErrorCode.NONE] * 3
    bench.commit(8)
    assert bench.held == 2
    assert bench.shard.end == bench.log.log_end == 4


def test_commits_do_not_linger_without_followers() -> None:
    bench = Bench(follows=True)
    assert code_of(bench.commit(5)) is ErrorCode.NONE
    assert (bench.written, bench.held) == ([1], 0)


def test_linger_zero_writes_at_once() -> None:
    bench = Bench(0)
    bench.commit(5)
    assert (bench.written, bench.held) == ([1], 0)


@pytest.mark.parametrize("follows", [True, False])
def test_linger_waits_the_configured_milliseconds(follows: bool) -> None:
    bench = Bench(5, follows=follows)
    start = bench.clock.monotonic()
    bench.commit(5)
    bench.clock.advance(4)
    bench.commit(6)
    assert bench.shard.next_due() == start + 5, "the first of them says when"
    bench.shard.on_due()
    assert bench.written == []
    bench.clock.advance(1)
    bench.shard.on_due()
    assert (bench.written, bench.held) == ([2], 0)
    assert bench.shard.next_due() != start + 5


def test_other_decision_sees_lingering_commits() -> None:
    bench = Bench()
    bench.commit(5)
    seen: list[int | None] = []

    def decide(machine: GroupMachine, now: int) -> Decision:
        seen.append(bench.offset())
        return Decision(reply="ok")

    last = RecordedReply()
    bench.shard.submit(decide, last)
    assert (seen, bench.written) == ([5], [1])
    assert not last.is_done, "what it saw is not committed yet"
    bench.log.commit()
    assert last.reply == "ok"


def test_marker_is_written_after_lingering_commits() -> None:
    bench = Bench()
    bench.commit(5)
    bench.shard.end_transaction(
        Producer(1, 0), EndTxnMarker(is_commit=True, coordinator_epoch=0), RecordedReply()
    )
    assert [read_header(batch).is_control for batch in bench.log.batches] == [False, False, True]


def test_offset_of_an_open_transaction_does_not_expire() -> None:
    bench = Bench()
    bench.clock.advance(bench.machine.settings.offsets_retention_ms)
    bench.commit(5)
    bench.shard.on_due()
    assert bench.offset() == 5
    assert bench.written == [1]


def test_group_created_by_a_commit_is_visible_to_the_next_decision() -> None:
    bench = Bench()
    bench.commit(5)
    bench.commit(6, group="new")
    assert bench.written == [1, 1]
    assert "new" in bench.machine.groups
    bench.commit(7, group="new")
    assert bench.written == [1, 1]


def test_error_reply_is_sent_in_order() -> None:
    bench = Bench()
    first, refused = bench.commit(5), bench.commit(6, epoch=3)
    assert bench.written == [1]
    assert not refused.is_done
    bench.log.commit()
    assert (code_of(first), code_of(refused)) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


def test_rejected_batch_fails_all_lingering_commits() -> None:
    bench = Bench()
    futures = [bench.commit(5), bench.commit(6)]
    bench.log.fault = NotEnoughReplicas("too few")
    bench.shard.flush()
    assert [code_of(each) for each in futures] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert bench.offset() == 0
    bench.log.fault = None
    bench.commit(7)
    bench.shard.flush()
    assert bench.offset() == 7


@pytest.mark.parametrize("how", ["written", "another", "closed"])
def test_pending_requests_fail_when_leadership_is_lost(how: str) -> None:
    bench = Bench()
    futures = [bench.commit(5), bench.commit(6)]
    bench.log.fault = NotLeader("gone")
    if how == "closed":
        bench.shard.close()
    elif how == "written":
        bench.shard.flush()
    else:
        futures.append(bench.commit(7, group="new"))
    assert [code_of(each) for each in futures] == [ErrorCode.NOT_COORDINATOR] * len(futures)
    assert bench.shard.state is ShardState.CLOSED
    bench.shard.flush()
    assert bench.written == []


def test_a_bug_while_writing_fails_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    futures = [bench.commit(5), bench.commit(6)]
    monkeypatch.setattr(bench.log, "append", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.shard.flush()
    assert [code_of(each) for each in futures] == [ErrorCode.NOT_COORDINATOR] * 2
    assert bench.shard.state is ShardState.CLOSED


def test_no_batch_is_larger_than_the_topic_takes() -> None:
    bench = Bench()
    bench.log.batch_bytes_max = 400
    futures = [bench.commit(n, size=60) for n in range(7)]
    bench.shard.flush()
    assert sum(bench.written) == 7
    assert max(bench.written) > 1
    assert max(map(len, bench.log.batches)) <= 400
    bench.commit(9, size=500)
    assert bench.written[-1] == 1, "alone too large: the log says what it thinks of it"
    bench.log.commit()
    assert all(code_of(each) is ErrorCode.NONE for each in futures)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(["g", "h"]), st.integers(0, 99)),
        st.tuples(st.just("stale"), st.sampled_from(["g", "h"]), st.integers(0, 9)),
        st.tuples(
            st.sampled_from(["flush", "other", "time", "replicated"]), st.just(""), st.just(0)
        ),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([-1, 5]))
def test_lingering_changes_nothing_but_the_batches(
    steps: list[tuple[str, str, int]], linger_ms: int
) -> None:
    """The same replies in the same order, the same records and state; and it loads again."""
    outcomes: list[Any] = []
    for bench in (Bench(linger_ms), Bench(0)):
        order: list[tuple[int, ErrorCode]] = []
        futures: dict[int, RecordedReply] = {}
        for number, (step, group, offset) in enumerate(steps):
            if step in ("commit", "stale"):
                epoch = -1 if step == "commit" else 4
                futures[number] = bench.commit(offset, group=group, epoch=epoch)
            elif step == "other":
                bench.shard.submit(lambda machine, now: Decision(reply="ok"), RecordedReply())
            elif step == "time":
                bench.clock.advance(3)
                bench.shard.on_due()
            elif step == "flush":
                bench.shard.flush()
            else:
                bench.log.commit()
                for at in [at for at, future in futures.items() if future.is_done]:
                    order.append((at, code_of(futures.pop(at))))
        bench.shard.flush()
        bench.log.commit()
        order += [(at, code_of(future)) for at, future in futures.items()]
        found = [
            (bytes(record.key or b""), bytes(record.value or b"")[:10])
            for batch in bench.log.batches
            for record in read_records(batch, 0)
        ]
        again = GroupMachine()
        fresh = Shard(
            "t-0", LeaderEpoch(7), bench.log, again, ShardSettings(bench.clock, decode_group_record)
        )
        while not fresh.load_step():
            pass
        assert again.offsets.committed == bench.machine.offsets.committed
        assert sorted(again.groups) == sorted(bench.machine.groups)
        outcomes.append((order_of(order), found, bench.offset(), bench.offset("h")))
    assert outcomes[0] == outcomes[1]


def order_of(order: list[tuple[int, ErrorCode]]) -> list[tuple[int, ErrorCode]]:
    """The replies by request: with lingering they may be later, but never different."""
    assert [at for at, _ in order] == sorted(at for at, _ in order), "one overtook another"
    return order


def test_adaptive_linger_waits_one_turn_of_the_event_loop() -> None:
    async def story() -> None:
        log = FakeLog(follows=False)
        parts = RuntimeParts(
            "groups",
            "t",
            lambda index: log,
            lambda index: GroupMachine(),
            ShardSettings(FakeClock(), decode_group_record, linger_ms=-1),
        )
        runtime = CoordinatorRuntime[GroupMachine](parts)
        runtime.on_led("t", 0, LeaderEpoch(0))
        runtime._load_some()
        topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
        request = OffsetCommitRequest("g", -1, topics=topics)

        def ask() -> Any:
            return runtime.submit(
                0,
                lambda machine, now, _: decide_offset_commit(machine, request, 9, now),
                may_linger=True,
            )

        answers = [ask() for _ in range(4)]
        assert len(log.batches) == 1, "the one that began the group"
        await asyncio.sleep(0)
        assert [read_header(batch).records_count for batch in log.batches] == [1, 3]
        log.commit()
        for answer in answers:
            assert (await answer).topics[0].partitions[0].error_code == 0

    asyncio.run(story())
