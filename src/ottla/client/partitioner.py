"""The partition of a record, as Kafka's Java client chooses it.

The partition of a key is ``murmur2(key)`` without its sign bit, modulo the number of partitions, so
that all clients write records with the same key to the same partition. Records without a key go to
one partition until a batch is full, then to another: fewer, larger batches (KIP-480).
"""

from collections.abc import Callable
from typing import Final

from ottla.protocol.types import Buffer

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash as an unsigned number."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MULTIPLIER & _WORD
        word ^= word >> 24
        word = word * _MULTIPLIER & _WORD
        mixed = mixed * _MULTIPLIER & _WORD ^ word
    if length > whole:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = mixed * _MULTIPLIER & _WORD
    mixed ^= mixed >> 13
    mixed = mixed * _MULTIPLIER & _WORD
    return mixed ^ mixed >> 15


def partition_of_key(key: Buffer, partitions: int) -> int:
    """Return the partition of a key; ``partitions`` is at least 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """The current partition of records without a key, for each topic."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._current: dict[str, int] = {}

    def choose(self, topic: str, partitions: int) -> int:
        """Return the current partition; choose one if there is none or it no longer exists."""
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = self._below(partitions)
        return current

    def move_on(self, topic: str, partitions: int) -> None:
        """Switch to another partition, if there is one: a batch of the current one is full."""
        current = self._current.get(topic)
        if current is not None and partitions > 1:
            step = 1 + self._below(partitions - 1)
            self._current[topic] = (current + step) % partitions
