"""Subscriptions to metrics of clients (KIP-714): who pushes which metrics, and how often. Pure.

A subscription names prefixes of metrics, an interval, and the clients it is for. A client that
matches several gets all their metrics at the shortest of their intervals.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final

import msgspec
import re2  # type: ignore[import-untyped]

from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Uuid

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
# An expression that needs more memory to compile matches no client.
_MEMORY_MAX: Final = 1 << 20
_FOUR_INT32: Final = Struct(">IIII")


class Subscription(msgspec.Struct, frozen=True):
    """The configuration of one subscription. ``match`` has ``selector=expression`` items."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[str, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """What one client pushes: prefixes of metrics, sorted, and the interval between pushes."""

    metrics: tuple[str, ...] = ()
    interval_ms: int = INTERVAL_MS_DEFAULT

    def subscription_id(self, instance: Uuid) -> int:
        """Return the id of this selection for a client instance, an int32.

        It changes with the selection, so that a client with an old one is recognised.
        """
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}".encode()
        first, second, third, fourth = (int(part) for part in _FOUR_INT32.unpack(instance))
        # Java's hash of a UUID: the exclusive or of its four words.
        found = crc32c(text, 0, len(text)) ^ first ^ second ^ third ^ fourth
        return found - (1 << 32) if found >= 1 << 31 else found


class SubscriptionTable:
    """All subscriptions, with their expressions compiled."""

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self._rows = [(each, _compiled(each.match)) for each in subscriptions]

    def select(self, client: Mapping[str, str]) -> Selection:
        """Return what a client pushes; ``client`` has its properties by selector."""
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for subscription, patterns in self._rows:
            if _matches(patterns, client):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        if ALL_METRICS in metrics:
            metrics = {ALL_METRICS}
        return Selection(tuple(sorted(metrics)), interval_ms)


Patterns = tuple[tuple[str, Any], ...]
"""Selectors with compiled expressions; the library has no types."""


def _compiled(match: tuple[str, ...]) -> Patterns | None:
    """Return the selectors and expressions; None if one cannot be compiled (RE2 is stricter than
    the check of the configuration: look-around is not supported).
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    found = []
    for item in match:
        selector, _, expression = (part.strip() for part in item.partition("="))
        try:
            found.append((selector, re2.compile(expression, options)))
        except re2.error:
            return None
    return tuple(found)


def _matches(patterns: Patterns | None, client: Mapping[str, str]) -> bool:
    if patterns is None:
        return False
    return all(
        selector in client and pattern.fullmatch(client[selector]) is not None
        for selector, pattern in patterns
    )
