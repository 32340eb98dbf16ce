"""Replies leave in the order of their requests, whenever each becomes known (P8).

Pure. A request takes a turn; its reply ends it, once; `ReplyOrder.due` gives what no earlier
request holds back any more. A request without a reply has its turn end empty.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Turn(msgspec.Struct, Generic[T], eq=False):
    """One request's place in the line. ``size`` is the memory held for it, in bytes."""

    size: int
    is_over: bool = False
    reply: T | None = None


class ReplyOrder(msgspec.Struct, Generic[T]):
    """The requests of a connection whose replies have not left yet, oldest first.

    ``bytes`` is the sum over all turns: of requests being worked on, and of replies that wait.
    """

    bytes: int = 0
    turns: deque[Turn[T]] = msgspec.field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.turns)

    def take_turn(self, size: int) -> Turn[T]:
        """Stand at the end of the line."""
        turn = Turn[T](size)
        self.turns.append(turn)
        self.bytes += size
        return turn

    def end(self, turn: Turn[T], reply: T | None, size: int) -> None:
        """Put the reply, which holds ``size`` bytes, or None for a request that has none."""
        assert not turn.is_over, "a request is answered once"
        self.bytes += size - turn.size
        turn.is_over, turn.reply, turn.size = True, reply, size

    def due(self) -> Iterator[T]:
        """Yield the replies that may leave now, in order, removing them from the line."""
        while self.turns and self.turns[0].is_over:
            turn = self.turns.popleft()
            self.bytes -= turn.size
            if turn.reply is not None:
                yield turn.reply
