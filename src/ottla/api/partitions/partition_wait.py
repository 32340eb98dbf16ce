"""A request that waits for several partitions, until all are done or the timeout expires.

Produce with acks=all waits for replication, DeleteRecords for the followers' log starts. Callbacks
notify the wait, so it needs no task.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from ottla.api.surface.replies import Reply, Result
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.runtime.pending import Pending

Done = Callable[[Fault | None], None]
TakeBack = Callable[[], None]
Subscribe = Callable[[Done], TakeBack]
"""Have ``done`` called once, possibly at once; the result cancels that."""


class PartitionWait:
    """The wait of one request. Partitions are identified by their index in the reply.

    ``ended`` is called once for each with NONE, the code of its fault, or REQUEST_TIMED_OUT; a
    partition that timed out may still complete later. ``finish`` then returns the reply.
    """

    __slots__ = ("_ended", "_finish", "_left", "_reply", "_takebacks")

    def __init__(
        self, ended: Callable[[int, ErrorCode], None], finish: Callable[[], Result]
    ) -> None:
        self._ended = ended
        self._finish = finish
        self._left: set[int] = set()
        self._takebacks: list[TakeBack] = []
        self._reply: Pending[Result] | None = None

    def begin(self, waits: Mapping[int, Subscribe], timeout_ms: int) -> Reply:
        """Return the reply; it is pending if there is anything to wait for."""
        self._left = set(waits)
        for slot, subscribe in waits.items():
            self._takebacks.append(subscribe(partial(self._done, slot)))
        if not self._left:
            return self._finish()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, self._late)
        self._takebacks.append(timer.cancel)
        # No callback runs after the reply is made, also if the connection cancelled it.
        self._reply = Pending(self._end)
        return self._reply

    def _done(self, slot: int, fault: Fault | None) -> None:
        if slot not in self._left:
            return  # late: the reply has been made
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
        if self._reply is not None and not self._reply.is_done:
            self._reply.answer(self._finish())

    def _end(self) -> None:
        takebacks, self._takebacks = self._takebacks, []
        for take_back in takebacks:
            take_back()
