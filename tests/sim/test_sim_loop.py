"""Virtual time: it jumps, keeps asyncio's ordering guarantees, and a seed decides the order."""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator

import pytest

from simulation.clock import EPOCH_MS, SimClock
from simulation.loop import PROCESS, Deadlock, Process, SimLoop, make_loop, run_simulated


def test_simulated_day_of_ticks_takes_little_wall_time() -> None:
    ticks = 0

    async def scenario() -> None:
        nonlocal ticks
        while ticks < 86_400 // 10:
            await asyncio.sleep(10)
            ticks += 1

    began = time.perf_counter()
    assert run_simulated(scenario()) == 86_400
    assert time.perf_counter() - began < 60
    assert ticks == 8640


def test_timeouts_and_groups_work_as_on_a_real_loop() -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        assert asyncio.get_running_loop().time() == 5
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asyncio.sleep(1, "a"))
            second = group.create_task(asyncio.sleep(2, "b"))
        assert (first.result(), second.result()) == ("a", "b")
        queue: asyncio.Queue[int] = asyncio.Queue()
        asyncio.get_running_loop().call_later(3, queue.put_nowait, 1)
        assert await queue.get() == 1

    assert run_simulated(scenario()) == 10


def test_callbacks_of_one_host_keep_their_order() -> None:
    seen: list[int] = []

    async def scenario() -> None:
        for i in range(100):
            asyncio.get_running_loop().call_soon(seen.append, i)
        await asyncio.sleep(0)

    run_simulated(scenario(), seed=3)
    assert seen == list(range(100))


def hosts_order(seed: int) -> str:
    seen: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        for name in "abcdef":
            context = contextvars.copy_context()
            context.run(PROCESS.set, Process(name))
            loop.call_soon(seen.append, name, context=context)
            loop.call_later(1, seen.append, name, context=context)
        await asyncio.sleep(2)

    run_simulated(scenario(), seed)
    return "".join(seen)


def test_seed_decides_order_between_hosts_and_of_equal_timers() -> None:
    assert hosts_order(1) == hosts_order(1)
    orders = {hosts_order(seed) for seed in range(20)}
    assert len({order[:6] for order in orders}) > 5
    assert len({order[6:] for order in orders}) > 5


def test_seed_decides_order_of_equal_timers_of_one_host() -> None:
    def order(seed: int) -> tuple[int, ...]:
        seen: list[int] = []

        async def scenario() -> None:
            for i in range(6):
                asyncio.get_running_loop().call_at(1.0, seen.append, i)
            await asyncio.sleep(2)

        run_simulated(scenario(), seed)
        return tuple(seen)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(10)}) > 5


def test_ended_process_never_runs_again() -> None:
    seen: list[str] = []
    process = Process("a")

    async def victim() -> None:
        try:
            seen.append("began")
            await asyncio.sleep(1)
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    async def scenario() -> None:
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        task = asyncio.get_running_loop().create_task(victim(), context=context)
        await asyncio.sleep(0.5)
        process.is_over = True
        await asyncio.sleep(5)
        assert not task.done()
        assert seen == ["began"]
        process.is_over = False  # let it end, so that nothing is left for the collector
        task.cancel()
        await asyncio.wait([task])

    run_simulated(scenario())


def test_deadlock_names_the_waiting_task() -> None:
    async def scenario() -> None:
        asyncio.current_task().set_name("sleepy")  # type: ignore[union-attr]
        await asyncio.Event().wait()

    loop = make_loop()
    task = loop.create_task(scenario())
    with pytest.raises(Deadlock, match="sleepy"):
        loop.run_until_complete(task)
    task.get_coro().close()  # type: ignore[union-attr]
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def test_unhandled_error_fails_the_run() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_simulated(scenario())


def test_run_in_executor_raises() -> None:
    async def scenario() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        run_simulated(scenario())


def test_open_async_generators_are_closed() -> None:
    closed: list[str] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(name)

    async def scenario() -> None:
        async for _ in numbers("dropped"):
            break
        await asyncio.sleep(5)
        assert closed == ["dropped"]

    run_simulated(scenario())


def test_wall_clock_jumps_and_drifts_and_monotonic_clock_does_not() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        clock = SimClock(loop)
        assert (clock.now(), clock.monotonic()) == (EPOCH_MS, 0)
        await asyncio.sleep(1.001)
        assert (clock.now(), clock.monotonic()) == (EPOCH_MS + 1001, 1001)
        clock.jump(-3_600_000)
        assert clock.now() == EPOCH_MS + 1001 - 3_600_000
        clock.drift(10)
        assert clock.now() == EPOCH_MS + 1001 - 3_600_000
        await asyncio.sleep(1)
        assert clock.now() == EPOCH_MS + 11_001 - 3_600_000
        assert clock.monotonic() == 2001

    run_simulated(scenario())
