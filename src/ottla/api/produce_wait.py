"""A Produce request with acks=all, from its appends until all of them are replicated or late."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ottla.api.produce_reply import PartitionResult
from ottla.api.replies import Result
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import Offset


class Replicated(Protocol):
    """What is waited on: a partition, see `replication.partition`."""

    def when_replicated(
        self, offset: Offset, done: Callable[[Fault | None], None]
    ) -> Callable[[], None]:
        """Call ``done`` once, maybe at once; the returned function takes that back."""
        ...


class Wait(Protocol):
    """One append to wait for: where its result stands, and one behind its last record."""

    @property
    def slot(self) -> int:
        """Its place among the results."""
        ...

    @property
    def partition(self) -> Replicated:
        """Where it was appended."""
        ...

    @property
    def offset(self) -> Offset:
        """One behind its last record."""
        ...


class ProduceWait:
    """The appends of one request that are not replicated yet.

    ``results`` is filled in: what fails gets its code and keeps its offsets, and so does what
    was not replicated in time, as REQUEST_TIMED_OUT; it may well be later. Nothing refers to
    the request's records any more.
    """

    __slots__ = ("_finish", "_future", "_left", "_results", "_takebacks")

    def __init__(self, results: list[PartitionResult], finish: Callable[[], Result]) -> None:
        self._results = results
        self._finish = finish
        self._left: set[int] = set()
        self._takebacks: list[Callable[[], None]] = []
        self._future: asyncio.Future[Result] | None = None

    def begin(self, waits: Sequence[Wait], timeout_ms: int) -> Result | asyncio.Future[Result]:
        """Return the reply if nothing has to be waited for, else a future of it."""
        self._left = {each.slot for each in waits}
        for each in waits:
            done = partial(self._done, each.slot)
            self._takebacks.append(each.partition.when_replicated(each.offset, done))
        if not self._left:
            return self._finish()
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, self._late)
        # However it ends, also by the connection giving it up, nobody is called back after.
        self._takebacks.append(timer.cancel)
        self._future.add_done_callback(self._end)
        return self._future

    def _done(self, slot: int, fault: Fault | None) -> None:
        self._left.discard(slot)
        if fault is not None:
            self._results[slot] = self._results[slot]._replace(error_code=fault.code)
        if not self._left:
            self._settle()

    def _late(self) -> None:
        for slot in self._left:
            late = self._results[slot]._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
            self._results[slot] = late
        self._settle()

    def _settle(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(self._finish())

    def _end(self, _: asyncio.Future[Result]) -> None:
        takebacks, self._takebacks = self._takebacks, []
        for take_back in takebacks:
            take_back()
