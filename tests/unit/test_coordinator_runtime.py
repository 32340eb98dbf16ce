"""The runtime: shards follow leadership, load concurrently, and fire their timers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from coordinator_harness import FakeClock, FakeLog
from immutables import Map
from test_coordinator_shard import Register, put

from ottla.api.surface.replies import reply_of
from ottla.coordinators.decision import LATER, Decision, SetTimer
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.protocol.faults import CoordinatorLoading, NotCoordinator, NotLeader
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch
from ottla.runtime.pending import Pending
from simulation.loop import run_simulated


class LoopClock(FakeClock):
    def monotonic(self) -> Any:
        return round(asyncio.get_running_loop().time() * 1000)


class Harness:
    def __init__(self) -> None:
        self.logs = {index: FakeLog() for index in range(3)}
        self.led = {0, 1, 2}
        self.runtime = CoordinatorRuntime[Register](
            RuntimeParts(
                "group-coordinator",
                "__consumer_offsets",
                lambda index: self.logs[index] if index in self.led else None,
                lambda index: Register(),
                ShardSettings(LoopClock(), decode_group_record, load_bytes=100),
            )
        )

    def lead(self, index: int, epoch: int = 1) -> None:
        self.runtime.on_led("__consumer_offsets", index, LeaderEpoch(epoch))

    def unlead(self, index: int, epoch: int | None = None) -> None:
        held = None if epoch is None else LeaderEpoch(epoch)
        self.runtime.on_unled("__consumer_offsets", index, held)

    def put(self, index: int, name: str, number: int) -> Any:
        reply = self.runtime.submit(
            index, lambda machine, now, future: Decision([put(name, number)], "ok")
        )
        return reply_of(reply)


def run(story: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with asyncio.TaskGroup() as group:
            service = group.create_task(harness.runtime.run(lambda: None))
            await story(harness)
            service.cancel()

    run_simulated(main())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_requests_before_between_and_after_leadership() -> None:
    async def story(harness: Harness) -> None:
        with pytest.raises(NotCoordinator):
            harness.put(0, "a", 1)
        harness.lead(0)
        with pytest.raises(CoordinatorLoading):
            harness.put(0, "a", 1)
        await settle()
        assert harness.put(0, "a", 1) == "ok"
        harness.unlead(0)
        with pytest.raises(NotCoordinator):
            harness.put(0, "a", 1)
        harness.lead(0, 2)
        await settle()
        assert harness.runtime.shard(0).committed() == Map({"a": 1})
        assert harness.put(0, "b", 1) == "ok"
        assert harness.logs[0].epochs == [1, 2]

    run(story)


def test_a_later_epoch_of_the_same_leader_keeps_state_and_writes_in_it() -> None:
    async def story(harness: Harness) -> None:
        harness.lead(0, 1)
        await settle()
        kept = harness.runtime.submit(0, keep)
        harness.lead(0, 4)
        assert harness.put(0, "a", 1) == "ok"
        assert harness.logs[0].epochs == [4]
        harness.unlead(0, 3)  # an event of an older leadership
        assert harness.put(0, "a", 2) == "ok"
        harness.unlead(0, 4)
        with pytest.raises(NotCoordinator):
            await kept

    def keep(machine: Register, now: Any, future: Any) -> Decision:
        machine.kept.append(future)
        return Decision(reply=LATER)

    run(story)


def test_leadership_of_other_topics_is_ignored() -> None:
    async def story(harness: Harness) -> None:
        harness.runtime.on_led("orders", 0, LeaderEpoch(1))
        await settle()
        with pytest.raises(NotCoordinator):
            harness.runtime.shard(0)
        harness.lead(0)
        await settle()
        harness.runtime.on_unled("orders", 0, None)
        harness.runtime.shard(0)

    run(story)


def test_shards_load_side_by_side_with_the_loop_free() -> None:
    async def story(harness: Harness) -> None:
        for index in (0, 1):
            harness.lead(index)
        await settle()
        for number in range(40):
            harness.put(0, f"name-{number}", number)
        for index in (0, 1):
            harness.unlead(index)
        for index in (0, 1):
            harness.lead(index, 2)
        turns = 0
        while harness.runtime.is_loading():
            turns += 1
            await asyncio.sleep(0)
            if turns == 6:
                harness.runtime.shard(1)  # the short log did not wait for the long one
        assert turns >= 20
        assert len(harness.runtime.shard(0).machine.numbers) == 40

    run(story)


def test_a_shard_whose_write_failed_is_read_again_while_it_is_led() -> None:
    async def story(harness: Harness) -> None:
        harness.lead(0)
        await settle()
        harness.put(0, "a", 1)
        harness.logs[0].fault = NotLeader("for a moment")
        with pytest.raises(NotCoordinator):
            harness.put(0, "a", 2)
        harness.logs[0].fault = None
        await settle()
        assert harness.runtime.shard(0).committed() == Map({"a": 1})
        harness.led.clear()
        harness.logs[0].fault = NotLeader("for good")
        with pytest.raises(NotCoordinator):
            harness.put(0, "a", 3)
        await settle()
        with pytest.raises(NotCoordinator):
            harness.runtime.shard(0)

    run(story)


def test_unreadable_log_does_not_affect_other_shards() -> None:
    async def story(harness: Harness) -> None:
        harness.logs[0].batches.append(bytes(200))
        harness.lead(0)
        harness.lead(1)
        await settle()
        assert [index for index, _ in harness.runtime.active()] == [1]
        with pytest.raises(NotCoordinator):
            harness.runtime.shard(0)

    run(story)


def test_timers_fire_when_due() -> None:
    async def story(harness: Harness) -> None:
        harness.lead(0)
        await settle()
        machine = harness.runtime.shard(0).machine
        harness.runtime.submit(
            0, lambda m, now, future: Decision(timers=[SetTimer(("soon",), 250)])
        )
        await asyncio.sleep(0.249)
        assert machine.rung == []
        await asyncio.sleep(0.002)
        assert machine.rung == [("soon",)]
        await asyncio.sleep(1)
        assert machine.rung == [("soon",), ("sweep",)]

    run(story)


def test_immediate_reply_creates_no_future() -> None:
    async def story(harness: Harness) -> None:
        harness.lead(0)
        await settle()
        assert harness.put(0, "a", 1) == "ok"
        harness.logs[0].follows = False
        pending = harness.put(0, "a", 2)
        assert isinstance(pending, Pending)
        asyncio.get_running_loop().call_soon(harness.logs[0].commit)
        assert await pending == "ok"
        gone = harness.put(0, "a", 3)
        gone.cancel()
        harness.logs[0].commit()  # a reply to a cancelled request is ignored

    run(story)


def test_a_marker_ends_a_transaction_through_the_runtime() -> None:
    async def story(harness: Harness) -> None:
        harness.lead(0)
        await settle()
        producer = Producer(9, 0)
        harness.runtime.submit(
            0, lambda m, now, future: Decision([put("a", 1)], "ok", producer=producer)
        )
        assert harness.runtime.end_transaction(0, producer, EndTxnMarker(True, 0)).is_done
        assert harness.runtime.shard(0).committed() == Map({"a": 1})

    run(story)


def test_stopped_runtime_fails_pending_requests() -> None:
    async def main() -> None:
        harness = Harness()
        waiting: list[Any] = []
        async with asyncio.TaskGroup() as group:
            service = group.create_task(harness.runtime.run(lambda: None))
            harness.lead(0)
            await settle()
            harness.logs[0].follows = False
            waiting.append(harness.put(0, "a", 1))
            service.cancel()
        with pytest.raises(NotCoordinator):
            await waiting[0]

    run_simulated(main())
