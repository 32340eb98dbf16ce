"""A waiting fetch: until enough records arrive, waiting becomes useless, or the time is over.

No polling. Each partition that was read notifies the wait when its log grows or its leader changes,
and so does an idle one of the session (`fetch_partitions.py`). Partitions that changed in one
iteration of the event loop are read together, so that a write to many partitions makes one reply.
Only those are read again: the sizes of the others are kept.
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
"""Reads one partition again; raises a `Fault` if it can no longer be read."""


class FetchWait:
    """One waiting fetch. ``future`` gets the result of ``answer``, once.

    Cancelling the future removes every subscription.
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
        """Wait for these partitions, whose current rows are ``rows``, and for idle ones.

        A session has one request in progress: a later one takes over the notifications.
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
        """Read the partitions that changed; reply if that is enough."""
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
                # It was idle: its subscription ended when it changed.
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
        except Exception as error:  # noqa: BLE001 - the future carries it
            self.future.set_exception(error)

    def _end(self, future: "asyncio.Future[Result]") -> None:
        if self._timer is not None:
            self._timer.cancel()
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes.clear()
        if self._session is not None and self._session.on_roused == self._wake:
            self._session.on_roused = None
