"""An event loop in its own thread, for use by blocking code."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

# Closing cancels what runs on the loop; no task here takes longer to finish.
END_S_MAX = 30.0


class LoopThread:
    """Run coroutines for other threads. Running once created; `close` ends it."""

    def __init__(self, name: str) -> None:
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._wait_stopped())

    async def _wait_stopped(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stop.wait()

    def submit(self, work: Coroutine[Any, Any, T], timeout_s: float) -> "Future[T]":
        """Start a coroutine on the loop; it is cancelled when it takes longer."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(_bounded(work, timeout_s), self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop; return its result or raise its exception.

        Raises:
            TimeoutError: it took longer and was cancelled.
        """
        return self.submit(work, timeout_s).result()

    def block(self, until: threading.Event) -> None:
        """Block the loop until an event is set; return once it is blocked."""
        assert self._loop is not None
        standing = threading.Event()

        def hold() -> None:
            standing.set()
            until.wait()

        self._loop.call_soon_threadsafe(hold)
        standing.wait()

    def close(self) -> None:
        """Cancel what still runs, and end the thread. May be called twice."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_S_MAX)


async def _bounded(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    async with asyncio.timeout(timeout_s):
        return await work
