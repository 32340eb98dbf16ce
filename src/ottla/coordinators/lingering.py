"""Decisions that wait to be written together (``group.coordinator.append.linger.ms``). Pure.

    linger  -1  until the event loop has run its current callbacks, and only if a commit
                has to wait for followers
             0  not at all
             n  for n milliseconds

Only decisions that no other decision depends on linger: commits of offsets to an existing group.
They enter the log and the state when they are written, all in one batch and in order. Any other
decision of the shard has them written first.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.coordinators.decision import Decision, Packed, ReplyFuture
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.types import Millis

# Lengths, deltas, attributes and header count of one record, at their longest in such a batch.
RECORD_OVERHEAD: Final = 24

ADAPTIVE: Final = -1

Pairs = Sequence[tuple[bytes, bytes | None]]


class Held(NamedTuple):
    """A waiting decision, with the records it will write."""

    decision: Decision
    packed: Packed
    pairs: Pairs
    future: ReplyFuture


class Lingering:
    """The waiting decisions of one shard. ``due`` is their deadline, if there is one."""

    def __init__(self) -> None:
        self.due: Millis | None = None
        self._held: list[Held] = []
        self._bytes = HEADER_BYTES

    def __len__(self) -> int:
        return len(self._held)

    def fits(self, pairs: Pairs, bytes_max: int) -> bool:
        """Return whether these records fit into one batch with the waiting ones."""
        return self._bytes + _size(pairs) <= bytes_max

    def hold(self, held: Held) -> None:
        """Add a waiting decision."""
        self._held.append(held)
        self._bytes += _size(held.pairs)

    def take(self) -> list[Held]:
        """Remove and return all waiting decisions."""
        held, self._held = self._held, []
        self.due, self._bytes = None, HEADER_BYTES
        return held


def _size(pairs: Pairs) -> int:
    return sum(RECORD_OVERHEAD + len(key) + len(value or b"") for key, value in pairs)
