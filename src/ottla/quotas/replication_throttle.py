"""The rate limit of replication, and the replicas that it applies to (KIP-73, KIP-113).

Pure. A reassignment must not starve clients: topics list the replicas that it copies
(``leader.replication.throttled.replicas`` and the follower's), and these share a rate per broker.
In-sync replicas are never throttled: acks=all waits for them.

Sizes are known only after a copy, so the rate is enforced by debt: copying stops until the debt is
paid off. Over any period the bytes are at most rate x time, plus one second's worth of credit, plus
one chunk.
"""

from collections.abc import Sequence
from typing import Final

from ottla.protocol.types import Millis

UNLIMITED: Final = 2**63 - 1
"""Kafka's default: no limit."""
SAVED_MS_MAX: Final = 1000

ALL_REPLICAS: Final = "*"


class Allowance:
    """The bytes per second that the throttled replicas of a broker share. Times are monotonic."""

    __slots__ = ("_at", "_balance", "rate")

    def __init__(self, rate: int = UNLIMITED) -> None:
        self.rate = rate
        self._balance = 0.0
        self._at = Millis(0)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit; 0 means none, too."""
        return 0 < self.rate < UNLIMITED

    def limit(self, rate: int) -> None:
        """Change the rate; a debt remains."""
        self.rate = rate

    def spend(self, size: int, now: Millis) -> None:
        """Count ``size`` bytes that were copied."""
        if self.is_limited:
            self._settle(now)
            self._balance -= size

    def is_exceeded(self, now: Millis) -> bool:
        """Say whether to wait before copying more."""
        return self.wait_ms(now) > 0

    def wait_ms(self, now: Millis) -> int:
        """Return how long to wait before copying more; 0 means no wait."""
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
