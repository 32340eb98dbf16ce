"""The system's randomness, and ids that Kafka accepts."""

import secrets
from collections.abc import Callable

from ottla.protocol.types import Uuid

# '-' is 62 in the base64 alphabet; the first character of an id encodes its top six bits.
_DASH = 62


def draw_uuid(draw: Callable[[int], bytes]) -> Uuid:
    """Return a version 4 UUID from ``draw(16)``, drawn again until Kafka accepts it.

    Kafka rejects its reserved ids (none of them has version 4, so they cannot occur here) and ids
    whose text starts with '-', which command lines parse as an option. One draw in 64 is
    discarded.
    """
    while True:
        raw = bytearray(draw(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != _DASH:
            return Uuid(bytes(raw))


class SystemRandom:
    """`Random` over the kernel's cryptographic generator."""

    def below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``."""
        return secrets.randbelow(limit)

    def fraction(self) -> float:
        """Return a float in ``[0, 1)`` with 53 random bits."""
        return secrets.randbits(53) / (1 << 53)

    def bytes(self, length: int) -> bytes:
        """Return ``length`` unguessable bytes."""
        return secrets.token_bytes(length)

    def uuid(self) -> Uuid:
        """Return a fresh id."""
        return draw_uuid(secrets.token_bytes)
