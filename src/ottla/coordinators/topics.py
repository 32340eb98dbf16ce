"""Which partition of an internal topic a key belongs to."""

from functools import lru_cache
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

# Every request of a group needs the hash of its id.
_HASHES_KEPT: Final = 4096


def partition_for(key: str, count: int) -> int:
    """Return the partition of a group id, transactional id or share key among ``count``.

    As in Kafka: the absolute value of Java's hash of the string; the one value without an absolute
    value counts as zero.
    """
    hashed = _java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % count


@lru_cache(maxsize=_HASHES_KEPT)
def _java_hash(text: str) -> int:
    """Return ``String.hashCode``: over UTF-16 units, 32 bits, signed."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        unit = encoded[index] << 8 | encoded[index + 1]
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed
