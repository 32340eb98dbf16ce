"""Random numbers from a seed: independent streams by name, the same on every machine and version.

The generator is SplitMix64: a counter and a bijective mixer, 64 bits per draw. Not
secret, which is the point.
"""

import hashlib

from ottla.protocol.types import Uuid
from ottla.runtime.randomness import draw_uuid

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class SimRandom:
    """`Random` by seed. Streams of different names never influence each other.

    A new draw in one place must not change the draws elsewhere, or no seed would survive an edit:
    so each part of the simulation draws from its own stream.
    """

    def __init__(self, seed: int, name: str = "") -> None:
        self.seed = seed
        self.name = name
        digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        self._state = int.from_bytes(digest, "big")

    def stream(self, name: str) -> "SimRandom":
        """Return the independent stream called ``name`` below this one."""
        return SimRandom(self.seed, f"{self.name}/{name}")

    def _draw(self) -> int:
        self._state = (self._state + _STEP) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``. The bias for small limits is below 2**-40."""
        if limit < 1:
            raise ValueError("limit is at least 1")
        if limit > 1 << 24:
            return int.from_bytes(self.bytes(limit.bit_length() // 8 + 6), "big") % limit
        return self._draw() % limit

    def fraction(self) -> float:
        """Return a float in ``[0, 1)``."""
        return (self._draw() >> 11) / (1 << 53)

    def chance(self, probability: float) -> bool:
        """Return True with ``probability``. Always draws, so the stream stays in step."""
        return self.fraction() < probability

    def between(self, low: float, high: float) -> float:
        """Return a float in ``[low, high)``."""
        return low + (high - low) * self.fraction()

    def bytes(self, length: int) -> bytes:
        """Return ``length`` bytes."""
        words = (length + 7) // 8
        return b"".join(self._draw().to_bytes(8, "big") for _ in range(words))[:length]

    def uuid(self) -> Uuid:
        """Return a UUID that Kafka accepts."""
        return draw_uuid(self.bytes)
