"""Share the event loop's time between connections.

    poll sockets, serve new requests for ROUND_S -> drain each queue for ROUND_S -> poll sockets ...

A connection whose request arrives while the round has time left, and no prompt connection waits, is
served at once. Otherwise the connection is queued here, and the loop polls its sockets before each
round. There are two queues:

    prompt    connections with one request that have not used up a slice recently
    backlog   connections that pipeline, and large requests that are served in steps

Both get `ROUND_S` in every round, so neither starves, and a client that sends one request at a time
waits behind clients like itself, not behind thousands of pipelined requests. It waits in the order
of arrival: thousands of connections are all served once before one of them is served again. Each
entry runs for at most one slice (`SLICE_S`, checked after each request or step) and then goes to
the back.

Each connection is queued at most once and each large request belongs to one connection, so the
queues are bounded by the number of connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.api.surface.replies import Steps

T = TypeVar("T")

ROUND_S: Final = 0.005
"""Time for requests between two polls of the sockets: for each queue, and for new arrivals."""
SLICE_S: Final = 0.002
"""Time that one connection or large request gets before the next one runs."""
BACKLOG_MEMORY_S: Final = 1.0
"""A connection that used up a slice this recently waits in the backlog, not among the prompt."""

FAST_REQUESTS_PER_CLOCK_READ: Final = 16
"""Fast-path requests that are served per read of the clock."""


class Done(NamedTuple, Generic[T]):
    """The result of steps that have ended."""

    result: T


class Runnable(Protocol):
    """An entry of a queue."""

    def run_slice(self) -> None:
        """Run for one slice; the entry queues itself again if it has more to do."""
        ...


class FairScheduler:
    """The queues of one event loop. ``now`` and ``call_soon`` are the loop's, in seconds."""

    def __init__(
        self,
        now: Callable[[], float] | None = None,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._now = now
        self._call_soon = call_soon
        self._began = 0.0  # when the round began
        self.last = 0.0  # when the last request was started or completed
        self.unseen = 0  # fast-path requests since the clock was read; see `has_time_for_fast_path`
        self._is_scheduled = False
        self._is_draining = False
        self._prompt: deque[Runnable] = deque()
        self._backlog: deque[Runnable] = deque()

    def now(self) -> float:
        """Return the loop's time."""
        if self._now is None:
            loop = asyncio.get_running_loop()
            self._now, self._call_soon = loop.time, loop.call_soon
        return self._now()

    def is_round_spent(self) -> bool:
        """Say whether a request that arrives now has to wait for a later round.

        It does if this round has no time left, and if prompt connections arrived before it: served
        at once, it would take the time for which they wait.

        asyncio does not report when it polls, and a callback per iteration would cost more than a
        small request. So a round also ends if no request arrived for `ROUND_S`; under steady load
        one request per `ROUND_S` is queued, and the queue runs right after the next poll.
        """
        now = self.now()
        if now - self.last >= ROUND_S and not self._is_scheduled:
            self._began = now
        self.last = now
        return bool(self._prompt) or now - self._began >= ROUND_S

    def has_time_for_fast_path(self) -> bool:
        """Say whether this round has time for a fast-path request, which takes microseconds.

        Reading the clock, or calling this, for each request would cost a few percent. So a
        connection counts requests in ``unseen`` and calls this once per
        `FAST_REQUESTS_PER_CLOCK_READ`; for every request while prompt connections wait. A
        connection that has waited is served: how many of them a round serves is up to `_drain`.
        """
        if self._is_draining:
            return True
        has_time = not self.is_round_spent()
        if has_time:
            self.unseen = 0
        return has_time

    def served(self, now: float) -> None:
        """Record the end of a slice: the time of a slow request is not a pause between requests."""
        self.last = now

    def enqueue(self, entry: Runnable, *, is_prompt: bool) -> None:
        """Queue ``entry``, which must not be queued already."""
        if is_prompt:
            self._prompt.append(entry)
            self.unseen = FAST_REQUESTS_PER_CLOCK_READ
        else:
            self._backlog.append(entry)
        now = self.now()
        if not self._is_scheduled:
            self._schedule()
        self.last = now

    async def complete(self, steps: Steps[T]) -> T:
        """Run ``steps`` to the end, one slice at a time, and return the result.

        Cancellation closes ``steps``.
        """
        work: _Work[T] = _Work(self, steps)
        self.enqueue(work, is_prompt=False)
        try:
            return await work.done
        finally:
            steps.close()

    def begin(self, steps: Steps[T]) -> Steps[T] | Done[T]:
        """Run ``steps`` for one slice; return the result if that was enough, else ``steps``."""
        stop = self.now() + SLICE_S
        try:
            while True:
                next(steps)
                if self.now() >= stop:
                    return steps
        except StopIteration as end:
            return Done(end.value)

    def describe(self) -> dict[str, int]:
        """Return the number of entries in each queue."""
        return {"prompt": len(self._prompt), "backlog": len(self._backlog)}

    def _schedule(self) -> None:
        self._is_scheduled = True
        assert self._call_soon is not None
        self._call_soon(self._run_round)

    def _run_round(self) -> None:
        """Run both queues, then schedule the next round if any entry is left."""
        self._is_scheduled = False
        for queue in (self._prompt, self._backlog):
            self._drain(queue)
        self._began = self.last = self.now()
        if not self._is_scheduled and (self._prompt or self._backlog):
            self._schedule()

    def _drain(self, queue: deque[Runnable]) -> None:
        # Entries that queue themselves again wait for the next round, even if time is left.
        stop = self.now() + ROUND_S
        self._is_draining = True
        try:
            for _ in range(len(queue)):
                queue.popleft().run_slice()
                if self.now() >= stop:
                    return
        finally:
            self._is_draining = False


class _Work(Generic[T]):
    """Steps in progress, one slice at a time."""

    def __init__(self, scheduler: FairScheduler, steps: Steps[T]) -> None:
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._scheduler = scheduler
        self._steps = steps

    def run_slice(self) -> None:
        """Run steps until the slice is used up or the work is done."""
        if self.done.done():
            return
        try:
            found = self._scheduler.begin(self._steps)
        except Exception as error:  # noqa: BLE001 - `FairScheduler.complete` raises it
            self.done.set_exception(error)
            return
        if isinstance(found, Done):
            self.done.set_result(found.result)
        else:
            self._scheduler.enqueue(self, is_prompt=False)
