"""Which partition of an internal topic a key belongs to."""

from functools import lru_cache
from operator import mul
from struct import unpack
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

# Every request of a group needs the hash of its id.
_HASHES_KEPT: Final = 4096
# Longer ones are hashed again: clients choose them, and one takes up to 128 KiB.
_KEPT_LENGTH_MAX: Final = 256
# 31 to the power of 63, 62, ... 0, in 32 bits.
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(63, -1, -1))


def partition_for(key: str, count: int) -> int:
    """Return the partition of a group id, transactional id or share key among ``count``.

    As in Kafka: the absolute value of Java's hash of the string; the one value without an absolute
    value counts as zero.
    """
    hashed = _kept_hash(key) if len(key) <= _KEPT_LENGTH_MAX else _java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % count


def _java_hash(text: str) -> int:
    """Return ``String.hashCode``: over UTF-16 units, 32 bits, signed."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    # By pieces: an id of 32 KiB would otherwise take milliseconds.
    for start in range(0, len(units), len(_POWERS)):
        piece = units[start : start + len(_POWERS)]
        hashed = hashed * 31 ** len(piece) + sum(map(mul, piece, _POWERS[-len(piece) :]))
        hashed &= 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


_kept_hash: Final = lru_cache(maxsize=_HASHES_KEPT)(_java_hash)
