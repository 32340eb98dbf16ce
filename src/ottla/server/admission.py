"""AdmissionLimits on the number and the rate of connections (KIP-612).

Pure: `Admission.admit` decides for one connection and counts it; `Admission.release` uncounts it.
All listeners of a node share the counts. A connection is counted in the order node, listener,
address; a connection rejected by a later limit is removed from the earlier counts.

Connections above a count limit are rejected. Connections above a rate limit are delayed: each takes
a token, possibly leaving the bucket in debt, and is served after the delay. One whose token is not
there within `DELAY_MS_MAX` takes none: as in Kafka, it is closed after the delay. So however many
connect at once, over any time the served ones are at most rate x time, plus one second's worth.
"""

import enum
from collections.abc import Callable, Mapping

import msgspec

from ottla.protocol.types import Millis
from ottla.runtime.host_address import canonical_host, without_scope

DELAY_MS_MAX = 1000
"""The longest delay of a connection that exceeds a rate limit."""

BUCKETS_MAX = 10_000
"""Token buckets that are kept; above this, buckets that are full again are dropped."""


class ExceededLimit(enum.Enum):
    """The limit because of which a connection was rejected."""

    CONNECTIONS = "max.connections"
    LISTENER = "max.connections of the listener"
    ADDRESS = "max.connections.per.ip"
    RATE = "connection creation rate"


def unlimited(name: str) -> int | None:
    """Limit no address or listener: the default of `AdmissionLimits`."""
    return None


class AdmissionLimits(msgspec.Struct, frozen=True):
    """The configured limits. None means no limit.

    ``per_ip_overrides`` holds limits of single addresses, in the form that `plain_ip` returns.
    The rates are connections per second: of an address (a client quota, so it may change), of a
    listener, and ``rate_max`` of all listeners together; 0 or less means no limit. The limits of
    the whole node do not apply to the ``protected`` listeners, through which nodes reach each
    other: a flood of clients must not cut a broker off from its cluster.
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
    """An admitted connection, to be released by `Admission.release`, and its delay.

    ``is_refused``: it is above a rate limit, and is closed after the delay instead of served.
    """

    ip: str
    listener: str
    delay_ms: int = 0
    is_refused: bool = False


class TokenBucket(msgspec.Struct):
    """A token bucket: ``rate`` tokens per second, at most ``max(1, rate)`` in it.

    ``tokens`` below zero is the debt of delayed connections, at most what `DELAY_MS_MAX` refills.
    """

    tokens: float
    updated: Millis

    def delay_ms(self, rate: int, now: Millis) -> int:
        """Return the milliseconds until one more token is available; `take` takes it."""
        self.refill(rate, now)
        return round((1 - self.tokens) * 1000 / rate) if self.tokens < 1 else 0

    def take(self) -> None:
        """Take one token; the bucket may be in debt for it."""
        self.tokens -= 1

    def refill(self, rate: int, now: Millis) -> bool:
        """Add the tokens earned since the last refill; say whether the bucket is full."""
        earned = (now - self.updated) * rate / 1000
        full = max(1, rate)
        self.tokens = min(self.tokens + earned, full)
        self.updated = now
        return self.tokens >= full


def plain_ip(host: str) -> str:
    """Return an address in one form: `canonical_host` without a scope; else ``host``.

    Otherwise a client would get a second allowance by connecting over the other address family.
    """
    return without_scope(canonical_host(host))


class Admission(msgspec.Struct):
    """Counts the connections of a node. Addresses without connections have no entry."""

    limits: AdmissionLimits
    _total: int = 0
    _by_listener: dict[str, int] = msgspec.field(default_factory=dict)
    _by_ip: dict[str, int] = msgspec.field(default_factory=dict)
    _buckets: dict[str, TokenBucket] = msgspec.field(default_factory=dict)

    def admit(self, host: str, listener: str, now: Millis) -> Admitted | ExceededLimit:
        """Decide on a connection from ``host``; ``now`` is monotonic."""
        ip = plain_ip(host)
        refusal = self._reserve(ip, listener)
        if refusal is not None:
            return refusal
        limits = self.limits
        rate_max = None if listener in limits.protected else limits.rate_max
        rates = (
            ("all", rate_max),
            (f"listener {listener}", limits.rate_of_listener(listener)),
            (f"ip {ip}", limits.rate_of_ip(ip)),
        )
        buckets = [
            (bucket, bucket.delay_ms(rate, now))
            for name, rate in rates
            if rate is not None and (bucket := self._bucket(name, rate, now)) is not None
        ]
        delay_ms = max((delay for _, delay in buckets), default=0)
        if delay_ms > DELAY_MS_MAX:
            return Admitted(ip, listener, DELAY_MS_MAX, is_refused=True)
        for bucket, _ in buckets:
            bucket.take()
        return Admitted(ip, listener, delay_ms)

    def release(self, place: Admitted) -> None:
        """Uncount a connection. The caller does this exactly once per `Admitted`."""
        self._total -= 1
        _count_down(self._by_listener, place.listener)
        _count_down(self._by_ip, place.ip)

    def describe(self) -> dict[str, int]:
        """Return the counts for operators: in total, and by address."""
        return {"total": self._total, **self._by_ip}

    def _reserve(self, ip: str, listener: str) -> ExceededLimit | None:
        limits = self.limits
        connections_max = None if listener in limits.protected else limits.connections_max
        if connections_max is not None and self._total >= connections_max:
            return ExceededLimit.CONNECTIONS
        self._total += 1
        listener_max = limits.per_listener_max.get(listener)
        of_listener = self._by_listener.get(listener, 0)
        if listener_max is not None and of_listener >= listener_max:
            self._total -= 1
            return ExceededLimit.LISTENER
        self._by_listener[listener] = of_listener + 1
        ip_max = limits.per_ip_overrides.get(ip, limits.per_ip_max)
        of_ip = self._by_ip.get(ip, 0)
        if ip_max is not None and of_ip >= ip_max:
            self._total -= 1
            _count_down(self._by_listener, listener)
            return ExceededLimit.ADDRESS
        self._by_ip[ip] = of_ip + 1
        return None

    def _bucket(self, name: str, rate: int, now: Millis) -> TokenBucket | None:
        """Return the bucket of a limit; None where the rate means no limit."""
        if rate <= 0:
            self._buckets.pop(name, None)
            return None
        bucket = self._buckets.get(name)
        if bucket is None:
            self._forget_full(rate, now)
            bucket = self._buckets[name] = TokenBucket(max(1, rate), now)
        return bucket

    def _forget_full(self, rate: int, now: Millis) -> None:
        """Drop buckets that are full again: they are equivalent to a missing bucket."""
        if len(self._buckets) < BUCKETS_MAX:
            return
        for name in [key for key, bucket in self._buckets.items() if bucket.refill(rate, now)]:
            del self._buckets[name]
        if len(self._buckets) >= BUCKETS_MAX:
            # A flood from ever new addresses: drop the oldest bucket; its address starts afresh.
            del self._buckets[next(iter(self._buckets))]


def _count_down(counts: dict[str, int], name: str) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]
