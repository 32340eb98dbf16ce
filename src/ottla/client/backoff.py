"""Exponential backoff with jitter."""

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Kafka's ``retry.backoff.ms`` and ``retry.backoff.max.ms`` (KIP-580)."""

    first_ms: int = 100
    longest_ms: int = 1000
    jitter: float = 0.2

    def wait_ms(self, attempt: int, fraction: float) -> int:
        """Return the wait before attempt ``attempt`` (0: the first retry).

        ``fraction`` in [0, 1) spreads it evenly within ``jitter`` to either side.
        """
        full = min(self.first_ms * 2 ** min(attempt, 30), self.longest_ms)
        return int(full * (1 + self.jitter * (2 * fraction - 1)))
