"""Latency over the last minute or so: count, sum and quantiles. Pure.

A histogram has 16 buckets per power of two, so that a quantile, the middle of its bucket, is off by
at most 3.2 %. Two windows slide: the current one and the one before. Counting a time is one
addition to a list.
"""

from itertools import chain
from typing import Final

import msgspec

_FINE_BITS: Final = 4
_FINE: Final = 1 << _FINE_BITS
# Below 32 us every microsecond has a bucket; the last bucket has all times above two minutes.
_POWERS: Final = 23
BUCKETS: Final = (_POWERS + 2) * _FINE


def bucket_of(micros: int) -> int:
    """Return the bucket of a time; times grow with their buckets."""
    shift = micros.bit_length() - _FINE_BITS - 1
    if shift <= 0:
        return max(micros, 0)
    return min((shift << _FINE_BITS) + (micros >> shift), BUCKETS - 1)


def middle_of(bucket: int) -> float:
    """Return the middle of a bucket in microseconds."""
    shift = max((bucket >> _FINE_BITS) - 1, 0)
    if shift == 0:
        return float(bucket)
    first = (bucket - (shift << _FINE_BITS)) << shift
    return first + ((1 << shift) - 1) / 2


class Latency(msgspec.Struct):
    """Times in microseconds. ``count`` and ``total`` are since the start."""

    count: int = 0
    total: int = 0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)
    _before: list[int] = msgspec.field(default_factory=list)

    def add(self, micros: int) -> None:
        """Count one time; a negative one counts as zero."""
        micros = max(micros, 0)
        self.count += 1
        self.total += micros
        self.buckets[bucket_of(micros)] += 1

    def slide(self) -> None:
        """Begin a new window and forget the one before the last."""
        self._before, self.buckets = self.buckets, [0] * BUCKETS

    def quantiles(self, fractions: tuple[float, ...]) -> list[float]:
        """Return quantiles of both windows in microseconds; NaN without times."""
        windows = [self.buckets, self._before] if self._before else [self.buckets]
        counts = [sum(pair) for pair in zip(*windows, strict=True)]
        total = sum(counts)
        if not total:
            return [float("nan")] * len(fractions)
        found, seen, wanted = [], 0, iter((*fractions, None))
        fraction = next(wanted)
        for bucket, count in enumerate(chain(counts, (0,))):
            seen += count
            while fraction is not None and count and seen >= fraction * total:
                found.append(middle_of(bucket))
                fraction = next(wanted)
        return found
