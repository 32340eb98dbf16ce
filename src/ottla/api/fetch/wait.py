"""A waiting fetch: until enough records arrive, waiting becomes useless, or the time is over.

No polling. Each partition that was read notifies the wait when its log grows or its leader changes,
and so does an idle one of the session (`partitions.py`). Partitions that changed in one
iteration of the event loop are read together, so that a write to many partitions makes one reply;
it is sent in that iteration.

A fetch that any batch satisfies is read once, for its reply. One that waits for many bytes reads
only the partitions that changed, and keeps the sizes of the others, until it has enough.
"""

import asyncio
from functools import partial
from typing import Protocol

from ottla.api.fetch.decision import READ, WAIT
from ottla.api.fetch.partitions import FetchedPartition, SessionPartitions
from ottla.api.fetch.reading import Reading
from ottla.api.fetch.reply import Row
from ottla.api.surface.replies import Result
from ottla.protocol.faults import Fault
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.replication.leading.waiters import Unsubscribe
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending


class FetchRead(Protocol):
    """The request that waits, as far as the wait needs it."""

    def answer_if_enough(self, bytes_min: int) -> Result | None:
        """Read all partitions; return the reply unless it is better to wait."""
        ...

    def answer(self) -> Result:
        """Read all partitions and return the reply."""
        ...


class FetchWait:
    """One waiting fetch. ``reply`` gets its result once.

    Cancelling the reply removes every subscription.
    """

    def __init__(self, bytes_min: int, request: FetchRead, reading: Reading) -> None:
        self._loop = asyncio.get_running_loop()
        self.reply: Pending[Result] = Pending(self._end)
        self._bytes_min = bytes_min
        self._request = request
        self._reading = reading
        self._sizes: dict[FetchedPartition, int] = {}
        self._size = 0
        self._woken: dict[FetchedPartition, Partition] = {}
        self._unsubscribes: list[Unsubscribe] = []
        self._session: SessionPartitions | None = None
        self._timer: asyncio.TimerHandle | None = None

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
        self._timer = self._loop.call_later(wait_ms / 1000, self._time_out)
        if session is not None:
            self._session = session
            session.on_roused = self.wake
        for fetched, partition in watched:
            size = rows[fetched].size
            self._sizes[fetched] = size
            self._size += size
            self._subscribe(fetched, partition)

    def _subscribe(self, fetched: FetchedPartition, partition: Partition) -> None:
        self._unsubscribes.append(partition.on_appended(partial(self.wake, fetched, partition)))

    def wake(self, fetched: FetchedPartition, partition: Partition) -> None:
        """Reply in this iteration of the event loop if a change of the partition is enough."""
        if self._is_in_vain(fetched, partition):
            return
        if not self._woken:
            self._loop.call_soon(self._consider)
            self.reply.announce()
        self._woken[fetched] = partition

    def _is_in_vain(self, fetched: FetchedPartition, partition: Partition) -> bool:
        """Whether a change adds nothing to what the wait has of a partition.

        With replicas, every record wakes the consumer before it may be read, and the followers
        after they have it.
        """
        if self._reading.decide(fetched, partition) is not WAIT:
            return False
        if fetched not in self._sizes:
            # It was idle: its subscription ended when it changed.
            self._sizes[fetched] = 0
            self._subscribe(fetched, partition)
        return True

    def _consider(self) -> None:
        """Reply if the partitions that changed have enough."""
        if self.reply.is_done:
            return
        woken, self._woken = self._woken, {}
        try:
            result = self._answer_at_once(woken)
            if result is None and self._is_enough(woken):
                result = self._request.answer()
        except Exception as error:  # noqa: BLE001 - the reply carries it
            self.reply.answer_now(error)
            return
        if result is not None:
            self.reply.answer_now(result)

    def _answer_at_once(self, woken: dict[FetchedPartition, Partition]) -> Result | None:
        """Return the reply if any batch is enough and there is one."""
        if self._bytes_min > HEADER_BYTES:
            return None
        for fetched, partition in woken.items():
            if self._reading.decide(fetched, partition) is READ:
                return self._request.answer_if_enough(self._bytes_min)
        return None

    def _is_enough(self, woken: dict[FetchedPartition, Partition]) -> bool:
        """Read the partitions that changed; return whether to reply."""
        for fetched, partition in woken.items():
            if self._is_in_vain(fetched, partition):
                continue
            try:
                found = self._reading.look_again(fetched, partition)
            except Fault:
                return True
            if found.diverging is not None:
                return True
            if fetched not in self._sizes:
                self._subscribe(fetched, partition)
            self._size += found.slice.length - self._sizes.get(fetched, 0)
            self._sizes[fetched] = found.slice.length
        return self._size >= self._bytes_min

    def _time_out(self) -> None:
        try:
            result = self._request.answer()
        except Exception as error:  # noqa: BLE001 - the reply carries it
            self.reply.answer_now(error)
        else:
            self.reply.answer_now(result)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes.clear()
        if self._session is not None and self._session.on_roused == self.wake:
            self._session.on_roused = None
