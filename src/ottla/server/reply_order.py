"""Send replies in the order of their requests, whenever each becomes known.

Pure. A request reserves a slot, and its reply completes the slot, once. `ReplyOrder.due` yields the
replies that no earlier request holds back. A request without a reply completes its slot with None.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class ReplySlot(msgspec.Struct, Generic[T], eq=False):
    """The position of one request. ``size`` is the memory held for it, in bytes."""

    size: int
    is_complete: bool = False
    reply: T | None = None


class ReplyOrder(msgspec.Struct, Generic[T]):
    """The requests of a connection whose replies have not been sent, oldest first.

    ``bytes`` is the sum over all slots: of requests in progress and of replies held back.
    """

    bytes: int = 0
    slots: deque[ReplySlot[T]] = msgspec.field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.slots)

    def reserve(self, size: int) -> ReplySlot[T]:
        """Reserve the slot after all earlier requests."""
        slot = ReplySlot[T](size)
        self.slots.append(slot)
        self.bytes += size
        return slot

    def complete(self, slot: ReplySlot[T], reply: T | None, size: int) -> None:
        """Store the reply, which holds ``size`` bytes; None for a request without one."""
        assert not slot.is_complete, "a request is answered once"
        self.bytes += size - slot.size
        slot.is_complete, slot.reply, slot.size = True, reply, size

    def remove_first(self, slot: ReplySlot[T]) -> bool:
        """Remove ``slot`` if it is the oldest, so that its reply can be sent now; say whether."""
        if self.slots[0] is not slot:
            return False
        del self.slots[0]
        self.bytes -= slot.size
        slot.is_complete = True
        return True

    def clear(self) -> None:
        """Drop all slots: the connection has closed, and no reply can be sent."""
        self.slots.clear()
        self.bytes = 0

    def due(self) -> Iterator[T]:
        """Remove and yield the replies that may be sent now, in order."""
        while self.slots and self.slots[0].is_complete:
            slot = self.slots.popleft()
            self.bytes -= slot.size
            if slot.reply is not None:
                yield slot.reply
