"""Requests in flight: at most one per destination, each with a deadline, then a pause.

A role change drops them all: a late reply then matches no request, so a reply is never taken for
that of a request of another epoch.
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
    """The requests in flight by destination, and the destinations paused after a failure."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._in_flight: dict[NodeId, InFlight] = {}
        self._paused_until: dict[NodeId, Millis] = {}
        self._tickets = 0

    def may_send(self, to: NodeId, now: Millis) -> bool:
        """Return whether ``to`` has no request in flight and is not paused."""
        return to not in self._in_flight and self._paused_until.get(to, now) <= now

    def is_paused(self, to: NodeId, now: Millis) -> bool:
        """Return whether the last request to ``to`` failed within the retry backoff."""
        return self._paused_until.get(to, now) > now

    def is_any_in_flight(self) -> bool:
        """Return whether any request is in flight."""
        return bool(self._in_flight)

    def sent(self, to: NodeId, request: Request, now: Millis) -> int:
        """Record a request; return its ticket."""
        self._tickets += 1
        deadline = Millis(now + self._request_timeout_ms)
        self._in_flight[to] = InFlight(self._tickets, to, request, deadline)
        return self._tickets

    def take(self, ticket: int) -> InFlight | None:
        """Remove and return the request of that ticket; None if there is none."""
        found = next((f for f in self._in_flight.values() if f.ticket == ticket), None)
        if found is not None:
            del self._in_flight[found.to]
        return found

    def pause(self, to: NodeId, now: Millis) -> None:
        """Send nothing to ``to`` for the retry backoff."""
        self._paused_until[to] = Millis(now + self._retry_backoff_ms)

    def expire(self, now: Millis) -> list[InFlight]:
        """Remove and return the requests past their deadline."""
        late = [f for f in self._in_flight.values() if f.deadline <= now]
        for request in late:
            del self._in_flight[request.to]
            self.pause(request.to, now)
        self._paused_until = {to: at for to, at in self._paused_until.items() if at > now}
        return late

    def forget_all(self) -> None:
        """Drop all requests and pauses."""
        self._in_flight.clear()
        self._paused_until.clear()

    def deadlines(self) -> list[Millis]:
        """Return the times at which a request or a pause expires."""
        return [f.deadline for f in self._in_flight.values()] + list(self._paused_until.values())
