"""Replies that wait for a commit, and views of the committed state for readers."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ottla.coordinators.decision import Answer, ReplyFuture
from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis, Offset

View = TypeVar("View")


class _PendingReply(msgspec.Struct, frozen=True):
    end: Offset  # send when everything below is committed
    deadline: Millis
    answers: Sequence[Answer]


class PendingReplies:
    """Answers in the order of their decisions; none is sent before an earlier one."""

    def __init__(self) -> None:
        self._queue: deque[_PendingReply] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, end: Offset, deadline: Millis, answers: Sequence[Answer]) -> None:
        """Keep answers until ``end`` is committed or the deadline has passed."""
        self._queue.append(_PendingReply(end, deadline, answers))

    def next_deadline(self) -> Millis | None:
        """Return the deadline of the oldest answer."""
        return self._queue[0].deadline if self._queue else None

    def take_committed(self, committed: Offset) -> list[Answer]:
        """Return the answers to send now that everything below ``committed`` is committed."""
        found: list[Answer] = []
        while self._queue and self._queue[0].end <= committed:
            found.extend(self._queue.popleft().answers)
        return found

    def take_overdue(self, now: Millis) -> list[ReplyFuture]:
        """Return the futures whose commit took too long. The records stay written."""
        found: list[ReplyFuture] = []
        while self._queue and self._queue[0].deadline <= now:
            found.extend(answer.future for answer in self._queue.popleft().answers)
        return found

    def take_all(self) -> list[ReplyFuture]:
        """Remove and return all futures."""
        found = [answer.future for pending in self._queue for answer in pending.answers]
        self._queue.clear()
        return found


class Views(Generic[View]):
    """The state at the high watermark, and after each append above it."""

    def __init__(self, view: View) -> None:
        self.committed = view
        self._above: deque[tuple[Offset, View]] = deque()

    def note(self, end: Offset, view: View, committed: Offset) -> None:
        """Remember the state after all records below ``end``."""
        if end <= committed:
            self._above.clear()
            self.committed = view
        else:
            self._above.append((end, view))

    def commit(self, committed: Offset) -> None:
        """Advance the committed state to the high watermark."""
        while self._above and self._above[0][0] <= committed:
            self.committed = self._above.popleft()[1]


class RecordedReply:
    """A `ReplyFuture` that stores its outcome: for decisions without a request, and tests."""

    def __init__(self) -> None:
        self.reply: Any = None
        self.fault: Fault | None = None
        self.is_done = False

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - as in `ReplyFuture`
        """Store the reply."""
        assert not self.is_done, "answered twice"
        self.reply, self.is_done = reply, True

    def fail(self, fault: Fault) -> None:
        """Store the fault."""
        assert not self.is_done, "answered twice"
        self.fault, self.is_done = fault, True
