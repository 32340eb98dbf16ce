"""Who may connect, how many, and how fast (NET-02, NET-03, KIP-612).

Pure: `Admission.admit` decides for one connection and remembers it; `Admission.release` forgets
it. Counts are shared by all listeners of a node. A place is taken in the order all, listener,
address; whoever is refused further down gives back what it was given further up.

Too many connections are refused. Too fast ones are not: each takes its token, going into debt,
and is told how long to wait. Nobody else waits for it, and since the wait is bounded
(`DELAY_MS_MAX`) so is the debt.
"""

import enum
import ipaddress
from collections.abc import Callable, Mapping

import msgspec

from ottla.protocol.types import Millis

DELAY_MS_MAX = 1000
"""The longest that a connection which came too fast is held back."""

BUCKETS_MAX = 10_000
"""Addresses whose rate is remembered; above it those that are full again are forgotten."""


class Refusal(enum.Enum):
    """Why a connection was closed at once."""

    CONNECTIONS = "max.connections"
    LISTENER = "max.connections of the listener"
    ADDRESS = "max.connections.per.ip"


def unlimited(name: str) -> int | None:
    """Limit no address or listener: the default of `Limits`."""
    return None


class Limits(msgspec.Struct, frozen=True):
    """The bounds, as configured. None is no bound.

    ``per_ip_overrides`` names addresses with a count of their own, in their plainest text.
    The rates are connections per second: of an address (a client quota, so it may change), of a
    listener, and ``rate_max`` of all listeners together; 0 or less is no bound. What is bound
    for all together does not bind the ``protected`` listeners, by which nodes reach each other:
    a flood of clients must not cut a broker off from its cluster.
    """

    connections_max: int | None = None
    per_ip_max: int | None = None
    per_ip_overrides: Mapping[str, int] = msgspec.field(default_factory=dict)
    per_listener_max: Mapping[str, int] = msgspec.field(default_factory=dict)
    rate_of_ip: Callable[[str], int | None] = unlimited
    rate_of_listener: Callable[[str], int | None] = unlimited
    rate_max: int | None = None
    protected: frozenset[str] = frozenset()


class Admitted(msgspec.Struct, frozen=True):
    """A place, to be given back by `Admission.release`, and how long to wait before serving."""

    ip: str
    listener: str
    delay_ms: int = 0


class TokenBucket(msgspec.Struct):
    """Tokens of connections: ``rate`` per second, at most ``max(1, rate)`` saved up.

    ``tokens`` below zero is debt of those who wait, never more than `DELAY_MS_MAX` pays off.
    """

    tokens: float
    updated: Millis

    def take(self, rate: int, now: Millis) -> int:
        """Take one token and return how many milliseconds it costs to wait for it."""
        self.refill(rate, now)
        self.tokens = max(self.tokens - 1, -rate * DELAY_MS_MAX / 1000)
        return min(DELAY_MS_MAX, round(-self.tokens * 1000 / rate)) if self.tokens < 0 else 0

    def refill(self, rate: int, now: Millis) -> bool:
        """Add what time has earned; say whether the bucket is full."""
        earned = (now - self.updated) * rate / 1000
        full = max(1, rate)
        self.tokens = min(self.tokens + earned, full)
        self.updated = now
        return self.tokens >= full


def plain_ip(host: str) -> str:
    """Return an address in one spelling: IPv4 inside IPv6 as IPv4, no zone; else ``host`` itself.

    Without this a client would have a second allowance by connecting over the other family.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


class Admission(msgspec.Struct):
    """The connections of a node, counted. No count is kept for an address that has none."""

    limits: Limits
    _total: int = 0
    _by_listener: dict[str, int] = msgspec.field(default_factory=dict)
    _by_ip: dict[str, int] = msgspec.field(default_factory=dict)
    _buckets: dict[str, TokenBucket] = msgspec.field(default_factory=dict)

    def admit(self, host: str, listener: str, now: Millis) -> Admitted | Refusal:
        """Decide on a connection from ``host``; ``now`` is monotonic."""
        ip = plain_ip(host)
        refusal = self._reserve(ip, listener)
        if refusal is not None:
            return refusal
        limits = self.limits
        rate_max = None if listener in limits.protected else limits.rate_max
        delay_ms = max(
            self._delay("all", rate_max, now),
            self._delay(f"listener {listener}", limits.rate_of_listener(listener), now),
            self._delay(f"ip {ip}", limits.rate_of_ip(ip), now),
        )
        return Admitted(ip, listener, delay_ms)

    def release(self, place: Admitted) -> None:
        """Give a place back. Once per `Admitted`: the caller sees to that."""
        self._total -= 1
        _count_down(self._by_listener, place.listener)
        _count_down(self._by_ip, place.ip)

    def describe(self) -> dict[str, int]:
        """Return the counts, for operators: in all, and of each address that has any."""
        return {"total": self._total, **self._by_ip}

    def _reserve(self, ip: str, listener: str) -> Refusal | None:
        limits = self.limits
        connections_max = None if listener in limits.protected else limits.connections_max
        if connections_max is not None and self._total >= connections_max:
            return Refusal.CONNECTIONS
        self._total += 1
        listener_max = limits.per_listener_max.get(listener)
        of_listener = self._by_listener.get(listener, 0)
        if listener_max is not None and of_listener >= listener_max:
            self._total -= 1
            return Refusal.LISTENER
        self._by_listener[listener] = of_listener + 1
        ip_max = limits.per_ip_overrides.get(ip, limits.per_ip_max)
        of_ip = self._by_ip.get(ip, 0)
        if ip_max is not None and of_ip >= ip_max:
            self._total -= 1
            _count_down(self._by_listener, listener)
            return Refusal.ADDRESS
        self._by_ip[ip] = of_ip + 1
        return None

    def _delay(self, who: str, rate: int | None, now: Millis) -> int:
        if rate is None or rate <= 0:
            self._buckets.pop(who, None)
            return 0
        bucket = self._buckets.get(who)
        if bucket is None:
            self._forget_full(rate, now)
            bucket = self._buckets[who] = TokenBucket(max(1, rate), now)
        return bucket.take(rate, now)

    def _forget_full(self, rate: int, now: Millis) -> None:
        """Make room: a bucket that is full again says no more than one that is not there."""
        if len(self._buckets) < BUCKETS_MAX:
            return
        for who in [w for w, bucket in self._buckets.items() if bucket.refill(rate, now)]:
            del self._buckets[who]
        if len(self._buckets) >= BUCKETS_MAX:
            # A flood from ever new addresses; the oldest stranger gets a fresh allowance.
            del self._buckets[next(iter(self._buckets))]


def _count_down(counts: dict[str, int], name: str) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]
