"""Arrival order of requests that wait before they are appended.

A Produce request may wait: for the coordinator of its transaction, or for a worker thread that
unpacks its batches. Requests that arrive later must not overtake it where their order matters:
for one producer and partition, and for a client without a producer id for one connection and
partition. Requests that share no key do not wait for each other.

    enter(keys) ------> first of every key: may go on at once
         \\-> behind others ---> leave() of the last one of them ---> may go on

A request enters all of its queues at once, so the oldest request is first in each of its queues
and no two requests wait for each other. A request that entered must leave, also when it fails.
The number of requests is bounded by what connections may have in flight.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable


class Ticket:
    """The position of one request in the queues of its keys.

    ``note`` is passed to the requests directly behind it, in their ``notes``.
    """

    __slots__ = ("_ahead", "_on_first", "keys", "note", "notes")

    def __init__(self, keys: tuple[Hashable, ...], ahead: int) -> None:
        self.keys = keys
        self.note: object = None
        self.notes: list[object] = []
        self._ahead = ahead  # the number of keys for which another request is first
        self._on_first: Callable[[], None] | None = None

    @property
    def is_first(self) -> bool:
        """Whether no request with one of the keys is before this one."""
        return self._ahead == 0

    def when_first(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, when the request becomes the first of all its keys."""
        assert not self.is_first
        self._on_first = call

    def step(self, note: object) -> None:
        """Become the first of one more key; `AppendOrder` calls this."""
        self._ahead -= 1
        if note is not None:
            self.notes.append(note)
        if self._ahead == 0 and self._on_first is not None:
            self._on_first()


class AppendOrder:
    """The waiting requests, in arrival order for each key. False if there are none.

    Every Produce request reads ``queues``, so it is not a property; only this class changes it.
    """

    def __init__(self) -> None:
        self.queues: dict[Hashable, deque[Ticket]] = {}

    def __bool__(self) -> bool:
        return bool(self.queues)

    def holds(self, keys: Iterable[Hashable]) -> bool:
        """Return whether a request with any of the keys is waiting."""
        return any(key in self.queues for key in keys)

    def enter(self, keys: Iterable[Hashable]) -> Ticket:
        """Queue a request behind all requests that share a key with it."""
        named = tuple(dict.fromkeys(keys))
        ticket = Ticket(named, sum(key in self.queues for key in named))
        for key in named:
            self.queues.setdefault(key, deque()).append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Release the requests behind. A cancelled request may leave from the middle."""
        woken: list[Ticket] = []
        for key in ticket.keys:
            queue = self.queues[key]
            was_first = queue[0] is ticket
            queue.remove(ticket)
            if not queue:
                del self.queues[key]
            elif was_first:
                woken.append(queue[0])
        # Only once all queues are consistent: a call may enter or leave.
        for each in woken:
            each.step(ticket.note)


async def wait_first(ticket: Ticket) -> None:
    """Wait until no request is before this one."""
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ticket.when_first(lambda: None if first.done() else first.set_result(None))
    await first
