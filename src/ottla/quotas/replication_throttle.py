"""How fast replicas may be copied, and which ones are held to it (KIP-73, KIP-113).

Pure. A reassignment must not starve the clients: the replicas that it copies are named per topic
(``leader.replication.throttled.replicas`` and the follower's), and share a rate per broker. Who
is in sync is never held back: acks=all waits for it.

Sizes are known after the fact, so a rate is kept by debt: whoever is in the red waits until it
has been paid off. Over any time the bytes are at most rate x time, plus a second's worth saved
up, plus one chunk.
"""

from collections.abc import Sequence
from typing import Final

from ottla.protocol.types import Millis

UNLIMITED: Final = 2**63 - 1
"""Kafka's default rate: none."""
SAVED_MS_MAX: Final = 1000

ALL_REPLICAS: Final = "*"


class Allowance:
    """Bytes per second that a broker's throttled replicas share. Times are monotonic."""

    __slots__ = ("_at", "_balance", "rate")

    def __init__(self, rate: int = UNLIMITED) -> None:
        self.rate = rate
        self._balance = 0.0
        self._at = Millis(0)

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate at all; 0 is none, too."""
        return 0 < self.rate < UNLIMITED

    def limit(self, rate: int) -> None:
        """Go by another rate from now on; a debt stays one."""
        self.rate = rate

    def spend(self, size: int, now: Millis) -> None:
        """Note that so many bytes were copied."""
        if self.is_limited:
            self._settle(now)
            self._balance -= size

    def is_exceeded(self, now: Millis) -> bool:
        """Say whether to wait before copying more."""
        return self.wait_ms(now) > 0

    def wait_ms(self, now: Millis) -> int:
        """Return how long to wait before copying more; 0 is not at all."""
        if not self.is_limited:
            return 0
        self._settle(now)
        return 0 if self._balance >= 0 else int(-self._balance * 1000 / self.rate) + 1

    def _settle(self, now: Millis) -> None:
        earned = self.rate * (now - self._at) / 1000
        self._at = now
        self._balance = min(self._balance + earned, self.rate * SAVED_MS_MAX / 1000)


def is_throttled(listed: Sequence[str], partition: int, broker: int) -> bool:
    """Say whether a topic's list names a replica: ``partition:broker``, or ``*`` for all."""
    if not listed:
        return False
    return ALL_REPLICAS in listed or f"{partition}:{broker}" in listed
