"""Requests on their way: at most one per destination, each with a deadline, then a pause.

Changing the role forgets them all: a late answer then finds nobody waiting, so an answer
never meets another epoch's question.
"""

import msgspec

from ottla.protocol.types import Millis, NodeId
from ottla.raft.core.messages import Request


class InFlight(msgspec.Struct, frozen=True):
    """A request that was sent and not yet answered."""

    ticket: int
    to: NodeId
    request: Request
    deadline: Millis


class Outstanding:
    """What was sent where, and who is left alone for a moment after a failure."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._in_flight: dict[NodeId, InFlight] = {}
        self._paused_until: dict[NodeId, Millis] = {}
        self._tickets = 0

    def may_send(self, to: NodeId, now: Millis) -> bool:
        """Say whether ``to`` is neither busy with a request of ours nor paused."""
        return to not in self._in_flight and self._paused_until.get(to, now) <= now

    def is_paused(self, to: NodeId, now: Millis) -> bool:
        """Say whether the last request to ``to`` failed a moment ago."""
        return self._paused_until.get(to, now) > now

    def is_any_in_flight(self) -> bool:
        """Say whether any request is on its way."""
        return bool(self._in_flight)

    def sent(self, to: NodeId, request: Request, now: Millis) -> int:
        """Note a request; return its ticket."""
        self._tickets += 1
        deadline = Millis(now + self._request_timeout_ms)
        self._in_flight[to] = InFlight(self._tickets, to, request, deadline)
        return self._tickets

    def take(self, ticket: int) -> InFlight | None:
        """Return and forget the request of that ticket; None when nobody waits for it."""
        found = next((f for f in self._in_flight.values() if f.ticket == ticket), None)
        if found is not None:
            del self._in_flight[found.to]
        return found

    def pause(self, to: NodeId, now: Millis) -> None:
        """Leave ``to`` alone for the retry backoff."""
        self._paused_until[to] = Millis(now + self._retry_backoff_ms)

    def expire(self, now: Millis) -> list[InFlight]:
        """Give up what is past its deadline; return it."""
        late = [f for f in self._in_flight.values() if f.deadline <= now]
        for request in late:
            del self._in_flight[request.to]
            self.pause(request.to, now)
        self._paused_until = {to: at for to, at in self._paused_until.items() if at > now}
        return late

    def forget_all(self) -> None:
        """Wait for nothing any more, and pause for nobody."""
        self._in_flight.clear()
        self._paused_until.clear()

    def deadlines(self) -> list[Millis]:
        """Return when something here changes by itself."""
        return [f.deadline for f in self._in_flight.values()] + list(self._paused_until.values())
