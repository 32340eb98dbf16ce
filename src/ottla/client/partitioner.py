"""Which partition a record goes to, as Kafka's Java client decides it.

A key's partition is ``murmur2(key)``, its sign bit dropped, modulo the number of partitions, so
that records of one key written by any client meet in one partition. Records without a key stay
with one partition until a batch of it is full, then move on: fewer, larger batches (KIP-480).
"""

from collections.abc import Callable
from typing import Final

from ottla.protocol.types import Buffer

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash, as a number that is not negative."""
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


class Sticky:
    """Where records without a key go at the moment, topic by topic."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._current: dict[str, int] = {}

    def choose(self, topic: str, partitions: int) -> int:
        """Return the partition of the moment, a fresh one where there is none or it is gone."""
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = self._below(partitions)
        return current

    def move_on(self, topic: str, partitions: int) -> None:
        """Go to another partition, where there is another; a batch of this one is full."""
        current = self._current.get(topic)
        if current is not None and partitions > 1:
            step = 1 + self._below(partitions - 1)
            self._current[topic] = (current + step) % partitions
