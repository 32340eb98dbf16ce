"""Replies that wait for a commit, and views of the state for those who read committed."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ottla.coordinators.decision import Answer, Ticket
from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis, Offset

View = TypeVar("View")


class _Parked(msgspec.Struct, frozen=True):
    end: Offset  # leaves when everything below is committed
    deadline: Millis
    answers: Sequence[Answer]


class Parked:
    """Answers in the order they were decided; none overtakes one decided before it."""

    def __init__(self) -> None:
        self._queue: deque[_Parked] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def park(self, end: Offset, deadline: Millis, answers: Sequence[Answer]) -> None:
        """Keep answers until ``end`` is committed or the deadline has passed."""
        self._queue.append(_Parked(end, deadline, answers))

    def next_deadline(self) -> Millis | None:
        """Return when the oldest gives up waiting."""
        return self._queue[0].deadline if self._queue else None

    def take_committed(self, committed: Offset) -> list[Answer]:
        """Return what may leave now that everything below ``committed`` is."""
        found: list[Answer] = []
        while self._queue and self._queue[0].end <= committed:
            found.extend(self._queue.popleft().answers)
        return found

    def take_overdue(self, now: Millis) -> list[Ticket]:
        """Return whom to tell that a commit took too long. What was written stays written."""
        found: list[Ticket] = []
        while self._queue and self._queue[0].deadline <= now:
            found.extend(answer.ticket for answer in self._queue.popleft().answers)
        return found

    def take_all(self) -> list[Ticket]:
        """Return everybody who waits; nobody does any more."""
        found = [answer.ticket for parked in self._queue for answer in parked.answers]
        self._queue.clear()
        return found


class Views(Generic[View]):
    """The state as of the high watermark, and as of each append above it."""

    def __init__(self, view: View) -> None:
        self.committed = view
        self._above: deque[tuple[Offset, View]] = deque()

    def note(self, end: Offset, view: View, committed: Offset) -> None:
        """Remember the state that everything below ``end`` amounts to."""
        if end <= committed:
            self._above.clear()
            self.committed = view
        else:
            self._above.append((end, view))

    def commit(self, committed: Offset) -> None:
        """Let readers see what is committed by now."""
        while self._above and self._above[0][0] <= committed:
            self.committed = self._above.popleft()[1]


class Settled:
    """A `Ticket` that remembers its outcome: for decisions that nobody asked for, and tests."""

    def __init__(self) -> None:
        self.reply: Any = None
        self.fault: Fault | None = None
        self.is_settled = False

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - as in `Ticket`
        """Remember the reply."""
        assert not self.is_settled, "answered twice"
        self.reply, self.is_settled = reply, True

    def fail(self, fault: Fault) -> None:
        """Remember the fault."""
        assert not self.is_settled, "answered twice"
        self.fault, self.is_settled = fault, True
