"""A fetch that waits: until enough has come, or it will not get better, or its time is over.

No polling. Each partition that was read wakes the waiter when it grows or changes hands, and so
does one that rests in the session (`fetch_partitions.py`); what woke in one turn of the loop is
looked at together, so that a write to many partitions makes one reply. Only those partitions are
looked at: what the others have is remembered.
"""

import asyncio
from collections.abc import Callable

from ottla.api.fetch_partitions import FetchedPartition, SessionPartitions
from ottla.api.fetch_reply import Row
from ottla.api.replies import Result
from ottla.protocol.faults import Fault
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import ReadResult
from ottla.replication.waiters import Unsubscribe

Look = Callable[[FetchedPartition, Partition], ReadResult]
"""Looks at one partition again; raises a `Fault` where it cannot be read any more."""


class FetchWait:
    """One waiting fetch. ``future`` gets what ``answer`` returns, once.

    Whoever cancels the future is not heard of again: nothing of it stays behind.
    """

    def __init__(self, bytes_min: int, look: Look, answer: Callable[[], Result]) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Result] = self._loop.create_future()
        self._bytes_min = bytes_min
        self._look = look
        self._answer = answer
        self._sizes: dict[FetchedPartition, int] = {}
        self._size = 0
        self._woken: dict[FetchedPartition, Partition] = {}
        self._unsubscribes: list[Unsubscribe] = []
        self._session: SessionPartitions | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.future.add_done_callback(self._end)

    def start(
        self,
        watched: list[tuple[FetchedPartition, Partition]],
        rows: dict[FetchedPartition, Row],
        wait_ms: int,
        session: SessionPartitions | None,
    ) -> None:
        """Wait for these partitions, of which ``rows`` says what they have, and for the session's.

        A session has one request under way: a later one takes over what wakes from now on.
        """
        self._timer = self._loop.call_later(wait_ms / 1000, self._finish)
        if session is not None:
            self._session = session
            session.on_roused = self._wake
        for fetched, partition in watched:
            size = rows[fetched].size
            self._sizes[fetched] = size
            self._size += size
            self._unsubscribes.append(partition.on_appended(self._waker(fetched, partition)))

    def _waker(self, fetched: FetchedPartition, partition: Partition) -> Callable[[], None]:
        return lambda: self._wake(fetched, partition)

    def _wake(self, fetched: FetchedPartition, partition: Partition) -> None:
        if not self._woken:
            self._loop.call_soon(self._consider)
        self._woken[fetched] = partition

    def _consider(self) -> None:
        """Look at what woke; answer if that is enough."""
        if self.future.done():
            return
        woken, self._woken = self._woken, {}
        for fetched, partition in woken.items():
            try:
                found = self._look(fetched, partition)
            except Fault:
                self._finish()
                return
            if found.diverging is not None:
                self._finish()
                return
            if fetched not in self._sizes:
                # It rested, and listens no more since it woke: what comes next must be heard, too.
                self._unsubscribes.append(partition.on_appended(self._waker(fetched, partition)))
            self._size += found.slice.length - self._sizes.get(fetched, 0)
            self._sizes[fetched] = found.slice.length
        if self._size >= self._bytes_min:
            self._finish()

    def _finish(self) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self._answer())
        except Exception as error:  # noqa: BLE001 - told to the client, as if it had not waited
            self.future.set_exception(error)

    def _end(self, future: "asyncio.Future[Result]") -> None:
        if self._timer is not None:
            self._timer.cancel()
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes.clear()
        if self._session is not None and self._session.on_roused == self._wake:
            self._session.on_roused = None
