"""The `Worker` port with a thread, and without one for simulations."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Result = TypeVar("Result")


class ThreadWorker:
    """`Worker` with one thread, or a few, started on first use."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on a thread."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # not needed to start a node

            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class InlineWorker:
    """`Worker` without a thread, for virtual time: work takes no time."""

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` in the next iteration of the event loop."""
        await asyncio.sleep(0)
        return work()
