"""The machine's randomness, and the shape Kafka wants of an id."""

import secrets
from collections.abc import Callable

from ottla.protocol.types import Uuid

# The base64 alphabet puts '-' at 62; an id is printed from its top six bits on.
_DASH = 62


def draw_uuid(draw: Callable[[int], bytes]) -> Uuid:
    """Return a version 4 UUID made of ``draw(16)``, drawn again until Kafka accepts it.

    Kafka refuses the ids it reserves (all of them have a version other than 4, so they
    cannot come up here) and those whose text begins with '-', which shells take for an
    option. One draw in 64 is thrown away.
    """
    while True:
        raw = bytearray(draw(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != _DASH:
            return Uuid(bytes(raw))


class SystemRandom:
    """`Random` over the kernel's generator: good enough for secrets."""

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
