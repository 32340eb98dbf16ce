"""Decisions that wait to be written together (``group.coordinator.append.linger.ms``). Pure.

    linger  -1  until the event loop has run its current callbacks, and only where a commit
                has to wait for followers: alone there is nothing to wait for
             0  not at all
             n  for so many milliseconds

Only decisions that no other decision can see wait: commits of offsets to a group that is there.
They are in the log and in the state when they are written, all in one batch and in their order,
and nothing else of their shard is decided while some wait: it has them written first.
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
    """A decision that waits, with what it will write."""

    decision: Decision
    packed: Packed
    pairs: Pairs
    future: ReplyFuture


class Lingering:
    """What waits in one shard. ``due`` is when it must be written, where a time was set."""

    def __init__(self) -> None:
        self.due: Millis | None = None
        self._held: list[Held] = []
        self._bytes = HEADER_BYTES

    def __len__(self) -> int:
        return len(self._held)

    def fits(self, pairs: Pairs, bytes_max: int) -> bool:
        """Say whether one batch can hold these behind what waits already."""
        return self._bytes + _size(pairs) <= bytes_max

    def hold(self, held: Held) -> None:
        """Let a decision wait."""
        self._held.append(held)
        self._bytes += _size(held.pairs)

    def take(self) -> list[Held]:
        """Return all that waits; nothing does any more."""
        held, self._held = self._held, []
        self.due, self._bytes = None, HEADER_BYTES
        return held


def _size(pairs: Pairs) -> int:
    return sum(RECORD_OVERHEAD + len(key) + len(value or b"") for key, value in pairs)
