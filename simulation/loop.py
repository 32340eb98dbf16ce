"""An event loop with virtual time: sleeping costs no wall time, and a seed decides the order.

Time stops while callbacks are ready and then jumps to the next timer. Two things that real machines
leave open are drawn from the seed: which of several hosts runs next, and which of several timers
due at the same time fires first. Within one host callbacks keep the order in which they were
registered, as asyncio guarantees.

A `Process` is one run of a host's program. It is in the context of everything that the program
starts; once it has ended, no callback in its context runs again: no ``finally``, no ``except``, as
in a power loss.

Limits: threads, real sockets and the iteration order of sets of strings are outside its control, so
simulated code uses none of them.
"""

import asyncio
import contextvars
import heapq
import sys
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

from simulation.random import SimRandom

T = TypeVar("T")


class Process:
    """One run of a host's program: from its start to its end, crash or kill.

    ``crash_at_step`` ends it before its n-th callback from the start runs; that may be at any
    await.
    """

    __slots__ = ("crash_at_step", "host", "is_over", "on_crash", "steps")

    def __init__(self, host: str, on_crash: Callable[[], None] = lambda: None) -> None:
        self.host = host
        self.is_over = False
        self.steps = 0
        self.crash_at_step = 0
        self.on_crash = on_crash

    def step(self) -> bool:
        """Count a callback that is about to run; say whether it may."""
        self.steps += 1
        if self.steps == self.crash_at_step:
            self.on_crash()
        return not self.is_over


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimTask(asyncio.Task[T]):
    """A task whose hash is a counter: asyncio keeps tasks in sets, and iterates over them.

    Hashed by address, as other tasks are, a group would cancel its children in an order that no
    seed decides.
    """

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class Deadlock(Exception):
    """Nothing is ready or scheduled, and a future is still awaited."""


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of a whole simulation.

    Unhandled exceptions of callbacks go to ``on_error``, which fails the run, where asyncio would
    only log; by default they are collected in ``errors``. ``on_step`` is called after every
    callback: a director that waits for a moment injects its fault there.
    """

    def __init__(self, seed: int = 0) -> None:
        self.errors: list[BaseException] = []
        self.on_error: Callable[[BaseException], None] = self.errors.append
        self.on_step: Callable[[], None] | None = None
        self._random = SimRandom(seed, "loop")
        self._now = 0.0
        self._count = 0
        self._tasks = 0
        self._ready: dict[Process | None, deque[asyncio.Handle]] = {}
        self._timers: list[tuple[float, int, int, asyncio.TimerHandle, Process | None]] = []
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False

    # -- scheduling ------------------------------------------------------------

    def time(self) -> float:
        """Return the simulated time in seconds since the simulation started."""
        return self._now

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` now, after the callbacks that its host has ready already."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._push(handle, context.get(PROCESS))
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` as `call_soon` does: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` after ``delay`` simulated seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when``; ties are broken by the seed."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        tie = self._random.below(1 << 16)
        heapq.heappush(self._timers, (when, tie, self._count, handle, context.get(PROCESS)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it in the heap: it is skipped when it is due."""

    def _push(self, handle: asyncio.Handle, process: Process | None) -> None:
        self._ready.setdefault(process, deque()).append(handle)

    def _run_once(self) -> None:
        """Run one callback, jumping to the next timer if nothing is ready."""
        if not self._ready:
            self._jump()
        while self._timers and self._timers[0][0] <= self._now:
            _, _, _, handle, process = heapq.heappop(self._timers)
            if not handle.cancelled():
                self._push(handle, process)
        if self._ready:
            self._run_one_ready()

    def _jump(self) -> None:
        while self._timers and self._timers[0][3].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"nothing will ever happen again; waiting: {', '.join(waiting)}")
        self._now = max(self._now, self._timers[0][0])

    def _run_one_ready(self) -> None:
        processes = list(self._ready)
        process = (
            processes[self._random.below(len(processes))] if len(processes) > 1 else processes[0]
        )
        queue = self._ready[process]
        handle = queue.popleft()
        if not queue:
            del self._ready[process]
        if not handle.cancelled() and (process is None or process.step()):
            handle._run()
            if self.on_step is not None:
                self.on_step()

    # -- tasks and futures -----------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a task of this loop."""
        self._tasks += 1
        return SimTask(coro, number=self._tasks, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an unhandled exception, unless it belongs to a process that has ended."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.on_error(error)

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode measures wall time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    def run_in_executor(self, executor: object, func: object, *args: object) -> asyncio.Future[Any]:
        """Raise: a thread would escape the simulation."""
        raise RuntimeError("no threads in a simulated simulation")

    # -- running ---------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401 - as asyncio declares it
        """Run until ``future`` is done and return its result; no later callback runs."""
        if not asyncio.isfuture(future):
            future = asyncio.Task(future, loop=self)
        future.add_done_callback(self._stop_now)
        try:
            self.run_forever()
        finally:
            future.remove_done_callback(self._stop_now)
        return future.result()

    def _stop_now(self, _: object) -> None:
        self.stop()

    def run_forever(self) -> None:
        """Run until stopped."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._note_generator, finalizer=self._end_generator)
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            while not self._is_stopping:
                self._run_once()
        finally:
            self._is_running = self._is_stopping = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def stop(self) -> None:
        """Return from `run_forever` before the next callback."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Say whether it runs."""
        return self._is_running

    def is_closed(self) -> bool:
        """Say whether it is closed."""
        return self._is_closed

    def close(self) -> None:
        """Forget everything scheduled."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def _note_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.append(weakref.ref(generator))

    def _end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_closed:
            asyncio.Task(generator.aclose(), loop=self)

    async def shutdown_asyncgens(self) -> None:
        """Close every asynchronous generator still open, oldest first."""
        for reference in self._generators:
            if (generator := reference()) is not None:
                await generator.aclose()
        self._generators.clear()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is none."""


def make_loop(seed: int = 0) -> SimLoop:
    """Return a loop. Sockets, signals and subprocesses are not implemented."""
    return SimLoop(seed)  # type: ignore[abstract]


def run_simulated(main: Coroutine[Any, Any, object], seed: int = 0) -> float:
    """Run ``main`` to its end; return the simulated time that passed, in seconds.

    Raises:
        Whatever ``main`` raised, or else the first unhandled exception of a callback.
    """
    loop = make_loop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)
        if loop.errors:
            raise loop.errors[0]
        return loop.time()
