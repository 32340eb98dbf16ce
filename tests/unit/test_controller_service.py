"""The active controller: replies after commit and apply, state dropped with lost leadership."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.controller.active_controller import (
    Controller,
    ControllerParts,
    ControllerSettings,
    Moment,
)
from ottla.controller.decision import Decision, Steps
from ottla.metadata.metadata_versions import LATEST_PRODUCTION, METADATA_VERSION
from ottla.metadata.replay import RECORDS_PER_STEP
from ottla.node.controller.image_loader import Followers, ImageLoader
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotController, RecordTooLarge, RequestTimedOut
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.messages.create_topics import CreateTopicsResponse
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.effects import Role, RoleChanged
from simulation.clock import SimClock
from simulation.loop import run_simulated

BOOTSTRAP = [Versioned(FeatureLevelRecord(METADATA_VERSION, int(LATEST_PRODUCTION)), 0)]


@dataclass
class FakeQuorum:
    """A log of batches; the test controls which are committed."""

    log: list[tuple[int, tuple[Versioned, ...]]] = field(default_factory=list)
    error: BaseException | None = None
    resigned: list[int] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        base = self.end_offset()
        self.log.append((epoch, tuple(records)))
        return base

    def end_offset(self) -> Offset:
        return Offset(sum(len(records) for _, records in self.log))

    def resign(self, epoch: LeaderEpoch) -> None:
        self.resigned.append(epoch)


class ControllerCluster:
    def __init__(self, **settings: Any) -> None:
        periodic_tasks = settings.pop("periodic_tasks", ())
        bootstrap = settings.pop("bootstrap", BOOTSTRAP)
        self.quorum = FakeQuorum()
        self.loader = ImageLoader()
        self.controller = Controller(
            ControllerParts(
                quorum=self.quorum,
                committed=self.loader,
                clock=SimClock(asyncio.get_running_loop()),
                bootstrap=bootstrap,
                periodic_tasks=periodic_tasks,
                settings=ControllerSettings(**{"idle_ms": 0, **settings}),
            )
        )
        self.loader.install(Followers((), [self.controller.on_role], [self.controller.on_applied]))
        self.applied = 0
        self.service = asyncio.create_task(self.controller.run(lambda: None))

    def lead(self, epoch: int = 1) -> None:
        start = self.quorum.end_offset()
        self.loader.on_role(RoleChanged(Role.LEADER, LeaderEpoch(epoch), NodeId(1), start))

    def follow(self, epoch: int = 2) -> None:
        self.loader.on_role(RoleChanged(Role.FOLLOWER, LeaderEpoch(epoch), NodeId(2)))

    async def commit(self, upto: int | None = None) -> None:
        """Apply whole batches below ``upto``, all of them by default."""
        base = 0
        for epoch, records in self.quorum.log:
            end = base + len(records)
            if self.applied <= base < (end if upto is None else upto):
                batch = CommittedBatch(
                    Offset(base), Offset(end), LeaderEpoch(epoch), Millis(7), records, 100
                )
                await self.loader.on_committed([batch])
                self.applied = end
            base = end

    async def lead_a_fresh_log(self) -> None:
        self.lead()
        await settle()
        await self.commit()
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def set_config(name: str, value: str = "1", topic: str = "t") -> Callable[[Moment], Decision[Any]]:
    def decide(moment: Moment) -> Decision[Any]:
        records = [Versioned(ConfigRecord(2, topic, name, value), 0)]
        return Decision(records, CreateTopicsResponse(throttle_time_ms=len(value)))

    return decide


def configs(moment_image: Any) -> dict[str, str]:
    return {
        name: value
        for resource in moment_image.configs.by_resource
        for name, value in moment_image.configs.of(resource).items()
    }


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
                await asyncio.wait([task])

        run_simulated(main())

    run.__name__ = test.__name__
    return run


@simulated
async def test_reply_waits_for_commit_and_apply() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    asked = asyncio.create_task(cluster.controller.submit(set_config("a", "xyz")))
    await settle()
    assert not asked.done() and cluster.controller.pending == 1
    await cluster.commit()
    assert (await asked).throttle_time_ms == 3
    assert configs(cluster.loader.image) == {"a": "xyz"}


@simulated
async def test_decision_sees_earlier_uncommitted_decisions() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    seen: list[dict[str, str]] = []

    def look(moment: Moment) -> Decision[Any]:
        seen.append(configs(moment.image))
        return Decision([], CreateTopicsResponse())

    first = asyncio.create_task(cluster.controller.submit(set_config("a")))
    second = asyncio.create_task(cluster.controller.submit(look))
    await settle()
    assert seen == [{"a": "1"}] and configs(cluster.loader.image) == {}
    assert not second.done(), "what it saw may still be lost"
    await cluster.commit()
    await asyncio.gather(first, second)


@simulated
async def test_records_of_one_decision_are_one_batch() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()

    def decide(moment: Moment) -> Decision[Any]:
        records = [Versioned(ConfigRecord(2, "t", name, "1"), 0) for name in ("a", "b", "c")]
        return Decision(records, CreateTopicsResponse())

    asked = asyncio.create_task(cluster.controller.submit(decide))
    await settle()
    assert not asked.done()
    assert [len(records) for _, records in cluster.quorum.log] == [1, 3]


@simulated
async def test_lost_leadership_fails_waiting_requests_and_drops_uncommitted_state() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    asked = asyncio.create_task(cluster.controller.submit(set_config("a")))
    await settle()
    cluster.follow()
    with pytest.raises(NotController):
        await asked
    assert not cluster.controller.is_active
    with pytest.raises(NotController):
        await cluster.controller.submit(set_config("b"))
    # The others never had the record: it is truncated, and the next leader does not know it.
    cluster.quorum.log.pop()
    cluster.lead(epoch=3)
    await settle()
    seen: list[dict[str, str]] = []

    def look(moment: Moment) -> Decision[Any]:
        seen.append(configs(moment.image))
        return Decision([], CreateTopicsResponse())

    await cluster.controller.submit(look)
    assert seen == [{}]


@simulated
async def test_new_leader_decides_only_once_all_earlier_records_are_applied() -> None:
    cluster = ControllerCluster()
    cluster.quorum.log = [
        (0, tuple(BOOTSTRAP)),
        (0, (Versioned(ConfigRecord(2, "t", "a", "1"), 0),)),
    ]
    cluster.lead()
    await settle()
    assert not cluster.controller.is_active
    await cluster.commit(upto=1)
    await settle()
    assert not cluster.controller.is_active
    await cluster.commit()
    await settle()
    assert cluster.controller.is_active


@simulated
async def test_bootstrap_records_are_written_once_to_an_empty_log() -> None:
    cluster = ControllerCluster()
    cluster.lead()
    with pytest.raises(NotController):
        await cluster.controller.submit(set_config("a"))
    await settle()
    assert cluster.quorum.log == [(1, tuple(BOOTSTRAP))]
    await cluster.commit()
    cluster.follow()
    cluster.lead(epoch=3)
    await settle()
    assert cluster.controller.is_active
    assert len(cluster.quorum.log) == 1


@simulated
async def test_open_transaction_of_an_older_leader_is_aborted_first() -> None:
    cluster = ControllerCluster()
    cluster.quorum.log = [
        (0, tuple(BOOTSTRAP)),
        (0, (Versioned(BeginTransactionRecord("x"), 0), Versioned(ConfigRecord(2, "t", "a"), 0))),
    ]
    await cluster.commit()
    cluster.lead()
    await settle()
    assert [type(r.message).__name__ for r in cluster.quorum.log[-1][1]] == [
        "AbortTransactionRecord"
    ]
    seen = []

    def look(moment: Moment) -> Decision[Any]:
        seen.append(configs(moment.image))
        return Decision([], CreateTopicsResponse())

    asked = asyncio.create_task(cluster.controller.submit(look))
    await settle()
    await cluster.commit()
    await asked
    assert seen == [{}] and not cluster.loader.is_in_transaction()


@simulated
async def test_rejected_append_does_not_change_the_newest_state() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    cluster.quorum.error = RecordTooLarge("too large")
    with pytest.raises(RecordTooLarge):
        await cluster.controller.submit(set_config("a"))
    cluster.quorum.error = None
    seen = []

    def look(moment: Moment) -> Decision[Any]:
        seen.append(configs(moment.image))
        return Decision([], CreateTopicsResponse())

    await cluster.controller.submit(look)
    assert seen == [{}] and cluster.quorum.resigned == []


@simulated
async def test_append_of_unknown_outcome_resigns_leadership() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    cluster.quorum.error = OSError("disk")
    with pytest.raises(OSError, match="disk"):
        await cluster.controller.submit(set_config("a"))
    assert cluster.quorum.resigned == [1] and not cluster.controller.is_active


@simulated
async def test_pending_requests_are_bounded() -> None:
    cluster = ControllerCluster(pending_max=2)
    await cluster.lead_a_fresh_log()
    asked = [asyncio.create_task(cluster.controller.submit(set_config(name))) for name in "ab"]
    await settle()
    with pytest.raises(RequestTimedOut) as refused:
        await cluster.controller.submit(set_config("c"))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    await cluster.commit()
    await asyncio.gather(*asked)
    assert set(configs(cluster.loader.image)) == {"a", "b"}


@simulated
async def test_decisions_stay_in_order_during_a_slow_append() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    cluster.quorum.gate = asyncio.Event()
    seen = []

    def look(moment: Moment) -> Decision[Any]:
        seen.append(configs(moment.image))
        return Decision([], CreateTopicsResponse())

    first = asyncio.create_task(cluster.controller.submit(set_config("a")))
    second = asyncio.create_task(cluster.controller.submit(look))
    await settle()
    assert seen == []
    cluster.quorum.gate.set()
    await settle()
    assert seen == [{"a": "1"}]
    await cluster.commit()
    await asyncio.gather(first, second)


@simulated
async def test_slices_of_a_decision_are_batches_of_their_own_without_another_in_between() -> None:
    cluster = ControllerCluster()
    await cluster.lead_a_fresh_log()
    seen = []

    def sliced(left: list[str]) -> Decision[Any]:
        records = [Versioned(ConfigRecord(2, "t", left[0], "1"), 0)]
        rest = left[1:]

        def then(image: Any) -> Decision[None]:
            seen.append(sorted(configs(image)))
            return sliced(rest)

        return Decision(records, None, then=then if rest else None)

    first = asyncio.create_task(cluster.controller.submit(lambda moment: sliced(["a", "b", "c"])))
    second = asyncio.create_task(cluster.controller.submit(set_config("z")))
    await settle()
    written = [records[0].message.name for _, records in cluster.quorum.log[1:]]
    assert written == ["a", "b", "c", "z"]
    assert seen == [["a"], ["a", "b"]]
    await cluster.commit(upto=2)
    await settle()
    assert not first.done(), "it is answered with its last slice"
    await cluster.commit()
    await asyncio.gather(first, second)


@simulated
async def test_idle_leader_writes_no_op_records() -> None:
    cluster = ControllerCluster(idle_ms=500)
    await cluster.lead_a_fresh_log()
    await asyncio.sleep(1.6)
    kinds = [type(record.message) for _, records in cluster.quorum.log for record in records]
    assert kinds == [FeatureLevelRecord, NoOpRecord, NoOpRecord, NoOpRecord]


@simulated
async def test_leader_with_a_stopped_replica_pauses_between_attempts() -> None:
    cluster = ControllerCluster(idle_ms=500)
    await cluster.lead_a_fresh_log()
    attempts = 0

    async def refuse(records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        nonlocal attempts
        attempts += 1
        assert attempts < 100, "it never rests"
        raise NotController("this node takes no part in the quorum")

    cluster.quorum.propose = refuse  # type: ignore[method-assign]
    await asyncio.sleep(2)
    assert 2 <= attempts <= 20


@dataclass
class Counted:
    name: str = "counted"
    interval_ms: int = 1000
    begun: int = 0
    rounds: list[int] = field(default_factory=list)

    def begin(self, moment: Moment) -> None:
        self.begun += 1

    def decide(self, moment: Moment) -> Decision[None]:
        self.rounds.append(moment.now)
        return Decision([], None)


@simulated
async def test_periodic_tasks_run_at_their_interval_and_only_while_active() -> None:
    task = Counted()
    cluster = ControllerCluster(periodic_tasks=[task])
    await asyncio.sleep(3)
    assert task.rounds == []
    await cluster.lead_a_fresh_log()
    await asyncio.sleep(3.5)
    assert task.begun == 1 and len(task.rounds) == 3
    cluster.follow()
    await asyncio.sleep(5)
    assert len(task.rounds) == 3
    cluster.lead(epoch=3)
    await asyncio.sleep(1.5)
    assert task.begun == 2 and len(task.rounds) == 4


# -- decisions in steps ----------------------------------------------------------------------


def in_steps(
    trail: list[str], name: str, steps: int = 3
) -> Callable[[Moment], Steps[Decision[Any]]]:
    """Return a decision that sets a configuration after some steps, each of them noted."""

    def decide(moment: Moment) -> Steps[Decision[Any]]:
        for _ in range(steps):
            trail.append(name)
            yield
        return set_config(name)(moment)

    return decide


def test_decision_in_steps_lets_the_event_loop_run_but_no_other_decision() -> None:
    async def main() -> None:
        cluster = ControllerCluster()
        await cluster.lead_a_fresh_log()
        trail: list[str] = []
        first = asyncio.create_task(cluster.controller.submit(in_steps(trail, "retention.ms")))
        other = asyncio.create_task(cluster.controller.submit(in_steps(trail, "segment.ms")))
        for turn in range(4):
            trail.append(f"turn {turn}")
            await asyncio.sleep(0)
        await settle()
        await cluster.commit()
        assert (await first).throttle_time_ms == (await other).throttle_time_ms == 1
        names = [step for step in trail if not step.startswith("turn")]
        assert names == ["retention.ms"] * 3 + ["segment.ms"] * 3
        one = "retention.ms"
        assert trail[:6] == ["turn 0", one, "turn 1", one, "turn 2", one]

    run_simulated(main())


def test_decision_in_steps_whose_leadership_ends_meanwhile_writes_nothing() -> None:
    async def main() -> None:
        cluster = ControllerCluster()
        await cluster.lead_a_fresh_log()
        before = len(cluster.quorum.log)
        task = asyncio.create_task(cluster.controller.submit(in_steps([], "retention.ms", 50)))
        await settle()
        cluster.follow()
        with pytest.raises(NotController):
            await task
        assert len(cluster.quorum.log) == before

    run_simulated(main())


def test_records_of_a_large_batch_are_applied_in_steps() -> None:
    async def main() -> None:
        cluster = ControllerCluster()
        await cluster.lead_a_fresh_log()
        before = len(cluster.quorum.log)

        def decide(moment: Moment) -> Decision[Any]:
            numbers = range(3 * RECORDS_PER_STEP)
            records = [Versioned(ConfigRecord(2, f"t{n}", "segment.ms", "1"), 0) for n in numbers]
            return Decision(records, CreateTopicsResponse())

        task = asyncio.create_task(cluster.controller.submit(decide))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(cluster.quorum.log) == before, "not all records are applied yet"
        await settle()
        await cluster.commit()
        await task

    run_simulated(main())
