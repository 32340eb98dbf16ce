"""Replies leave in the order of their requests, whenever each becomes known (P8).

Pure. A request takes a slot; its reply ends it, once; `ReplyOrder.due` gives what no earlier
request holds back any more. A request without a reply has its slot end empty.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class ReplySlot(msgspec.Struct, Generic[T], eq=False):
    """One request's place in the line. ``size`` is the memory held for it, in bytes."""

    size: int
    is_complete: bool = False
    reply: T | None = None


class ReplyOrder(msgspec.Struct, Generic[T]):
    """The requests of a connection whose replies have not left yet, oldest first.

    ``bytes`` is the sum over all slots: of requests being worked on, and of replies that wait.
    """

    bytes: int = 0
    slots: deque[ReplySlot[T]] = msgspec.field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.slots)

    def reserve(self, size: int) -> ReplySlot[T]:
        """Stand at the end of the line."""
        slot = ReplySlot[T](size)
        self.slots.append(slot)
        self.bytes += size
        return slot

    def complete(self, slot: ReplySlot[T], reply: T | None, size: int) -> None:
        """Put the reply, which holds ``size`` bytes, or None for a request that has none."""
        assert not slot.is_complete, "a request is answered once"
        self.bytes += size - slot.size
        slot.is_complete, slot.reply, slot.size = True, reply, size

    def due(self) -> Iterator[T]:
        """Yield the replies that may leave now, in order, removing them from the line."""
        while self.slots and self.slots[0].is_complete:
            slot = self.slots.popleft()
            self.bytes -= slot.size
            if slot.reply is not None:
                yield slot.reply
