"""A request that waits for several partitions to get somewhere, until all have or time is up.

Produce with acks=all waits for replication, DeleteRecords for the followers' log starts. Both
are told by callbacks, so that no task is needed; where nothing has to be waited for, there is
not even a future.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from ottla.api.replies import Result
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

Done = Callable[[Fault | None], None]
TakeBack = Callable[[], None]
Subscribe = Callable[[Done], TakeBack]
"""Have ``done`` called once, maybe at once; what is returned takes that back."""


class PartitionWait:
    """Waits on behalf of one request. Its partitions are known by their place in the reply.

    ``ended`` is told of each, once: NONE, the code of its fault, or REQUEST_TIMED_OUT, after
    which it may still come to what was waited for. ``finish`` then makes the reply.
    """

    __slots__ = ("_ended", "_finish", "_future", "_left", "_takebacks")

    def __init__(
        self, ended: Callable[[int, ErrorCode], None], finish: Callable[[], Result]
    ) -> None:
        self._ended = ended
        self._finish = finish
        self._left: set[int] = set()
        self._takebacks: list[TakeBack] = []
        self._future: asyncio.Future[Result] | None = None

    def begin(
        self, waits: Mapping[int, Subscribe], timeout_ms: int
    ) -> Result | asyncio.Future[Result]:
        """Return the reply if nothing has to be waited for, else a future of it."""
        self._left = set(waits)
        for slot, subscribe in waits.items():
            self._takebacks.append(subscribe(partial(self._done, slot)))
        if not self._left:
            return self._finish()
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, self._late)
        self._takebacks.append(timer.cancel)
        # However it ends, also by the connection giving it up, nobody is called back after.
        self._future.add_done_callback(self._end)
        return self._future

    def _done(self, slot: int, fault: Fault | None) -> None:
        if slot not in self._left:
            return  # late: the answer is on its way
        self._left.discard(slot)
        self._ended(slot, ErrorCode.NONE if fault is None else fault.code)
        if not self._left:
            self._settle()

    def _late(self) -> None:
        late, self._left = sorted(self._left), set()
        for slot in late:
            self._ended(slot, ErrorCode.REQUEST_TIMED_OUT)
        self._settle()

    def _settle(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(self._finish())

    def _end(self, _: asyncio.Future[Result]) -> None:
        takebacks, self._takebacks = self._takebacks, []
        for take_back in takebacks:
            take_back()
