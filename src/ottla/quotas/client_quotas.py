"""Client quotas: bytes produced and fetched, request time (KIP-13, KIP-55, KIP-124).

A quota belongs to a user, a client id, both, or a default of either. The most specific one that is
set applies, in Kafka's order; clients with the same quota entity share one bucket:

    user and client id, user and any client id, user,
    any user and client id, any user and any client id, any user,
    client id, any client id

What a request cost is known after it was served, so a bucket keeps a debt: the client is throttled
until the debt is paid at the rate of the quota. What flows in during all windows but one
(``quota.window.num``, ``quota.window.size.seconds``) can be saved up: Kafka averages over as many,
so that an idle client may use as much at once, and is throttled for as long afterwards.

Amounts are bytes, milliseconds of request time for a percentage, or changed partitions. Times are
monotonic.
"""

import enum
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.protocol.types import Millis
from ottla.quotas.usage_metrics import SECOND, Usage, Window

USER: Final = "user"
CLIENT_ID: Final = "client-id"
Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, sorted by type; None as a name is the default."""

THROTTLE_MS_MAX: Final = 60_000
"""The longest that one reply throttles a client; the rest of a larger debt follows later."""
LOOKUPS_MAX: Final = 50_000
IDLE_MS: Final = 60_000
"""A bucket without debt that was not used for so long is dropped."""
BUCKETS_MAX: Final = 50_000
"""Buckets of all kinds; above it those without debt are dropped, then the oldest."""
NAME_LENGTH_MAX: Final = 256
"""Characters of a name in a bucket's entity; a client chooses its id, up to 32 KiB."""


class QuotaKind(enum.Enum):
    """What a quota limits; the value is Kafka's name of it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"

    # An enum hashes in Python code otherwise, at every lookup.
    __hash__ = object.__hash__

    @property
    def per_second(self) -> float:
        """Amount per second for a quota of 1."""
        # One percent is ten milliseconds of each second.
        return 10.0 if self is QuotaKind.REQUEST else 1.0


class Limit(NamedTuple):
    """The quota of a client: whose bucket it uses, and how much flows in per second."""

    entity: tuple[str | None, str | None]
    rate: float


def quota_client(principal: str, client_id: str | None) -> tuple[str, str]:
    """Return the client that a request counts for: the name of its user, and its client id."""
    return principal.partition(":")[2], client_id or ""


class ClientUsage(NamedTuple):
    """What the clients of one bucket used lately: per second, and the average throttle time."""

    user: str
    client_id: str
    rate: float
    throttle_ms: float


class _Bucket:
    __slots__ = ("at", "balance", "usage", "used_at")

    def __init__(self, balance: float, now: Millis) -> None:
        self.balance = balance
        self.usage = Usage()
        self.at = self.used_at = now

    def settle(self, rate: float, saved_s_max: float, now: Millis) -> None:
        earned = rate * max(0, now - self.at) / 1000
        self.balance = min(self.balance + earned, rate * saved_s_max)
        self.at = Millis(max(now, self.at))


class ClientQuotas:
    """The quotas of one broker, and what their clients used. Every broker enforces its own."""

    def __init__(self, window: Window = SECOND) -> None:
        self._window = window
        self._saved_s_max = window.credit_s
        self._limits: dict[QuotaKind, dict[Entity, float]] = {kind: {} for kind in QuotaKind}
        self._found: dict[tuple[QuotaKind, str, str], Limit | None] = {}
        self._applied: dict[tuple[str, str | None], bool] = {}
        self._buckets: dict[tuple[QuotaKind, tuple[str | None, str | None]], _Bucket] = {}
        self._swept_at = Millis(0)
        self.is_active = False
        """Whether any quota is set; if not, nothing is looked up or measured."""

    def update(self, by_entity: Mapping[Entity, Mapping[str, float]]) -> None:
        """Go by these quotas from now on; debts stay."""
        for kind in QuotaKind:
            self._limits[kind] = {
                entity: limits[kind.value]
                for entity, limits in by_entity.items()
                if kind.value in limits
            }
            if not self._limits[kind]:
                self._buckets = {k: v for k, v in self._buckets.items() if k[0] is not kind}
        self._found.clear()
        self._applied.clear()
        self.is_active = any(self._limits.values())

    def applies(self, principal: str, client_id: str | None) -> bool:
        """Say whether any quota applies to a client."""
        key = (principal, client_id)
        found = self._applied.get(key)
        if found is None:
            client = quota_client(principal, client_id)
            found = any(self.limit_of(kind, client) is not None for kind in QuotaKind)
            if _is_long(*client):
                return found
            if len(self._applied) >= LOOKUPS_MAX:
                self._applied.clear()
            self._applied[key] = found
        return found

    def amount_max(self, kind: QuotaKind, client: tuple[str, str]) -> float | None:
        """Return what a client can have saved up at most; None without a quota."""
        limit = self.limit_of(kind, client)
        return None if limit is None else limit.rate * self._saved_s_max

    def is_limited(self, kind: QuotaKind) -> bool:
        """Say whether there is a quota of this kind; if not, nothing is measured."""
        return bool(self._limits[kind])

    def charge(self, kind: QuotaKind, client: tuple[str, str], amount: float, now: Millis) -> int:
        """Take what a request cost; return how many milliseconds to throttle its client.

        ``client`` is the name of the user and the client id.
        """
        limit = self.limit_of(kind, client)
        if limit is None:
            return 0
        bucket = self._bucket(kind, limit, now)
        bucket.balance -= amount
        bucket.used_at = now
        self._sweep(now)
        throttle_ms = self._bounded(kind, _throttle_ms(bucket, limit))
        bucket.usage.record(self._window, amount, throttle_ms, now)
        return throttle_ms

    def record(self, kind: QuotaKind, client: tuple[str, str], amount: float, now: Millis) -> None:
        """Take what a request cost after its throttle time was decided: the next one pays."""
        limit = self.limit_of(kind, client)
        if limit is not None:
            bucket = self._bucket(kind, limit, now)
            bucket.balance -= amount
            bucket.used_at = now
            bucket.usage.record(self._window, amount, 0, now)

    def throttle_ms(self, kind: QuotaKind, client: tuple[str, str], now: Millis) -> int:
        """Return for how long a client is over its quota; 0 for not at all."""
        limit = self.limit_of(kind, client)
        if limit is None:
            return 0
        return self._bounded(kind, _throttle_ms(self._bucket(kind, limit, now), limit))

    def usage(self, kind: QuotaKind, now: Millis, clients_max: int) -> list[ClientUsage]:
        """Return what clients with a quota used lately: the last ones that used anything.

        A name is empty where the quota is not by user, or not by client id.
        """
        found = [(key[1], bucket) for key, bucket in self._buckets.items() if key[0] is kind]
        found.sort(key=lambda each: each[1].used_at, reverse=True)
        return [
            ClientUsage(
                user or "",
                client_id or "",
                bucket.usage.rate(self._window, now),
                bucket.usage.throttle_ms(self._window, now),
            )
            for (user, client_id), bucket in found[:clients_max]
        ]

    def _bounded(self, kind: QuotaKind, throttle_ms: int) -> int:
        """Bound the throttle time for request time by one window, as Kafka does."""
        if kind is QuotaKind.REQUEST:
            return min(throttle_ms, self._window.size_ms)
        return throttle_ms

    def _bucket(self, kind: QuotaKind, limit: Limit, now: Millis) -> _Bucket:
        key = (kind, limit.entity)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._make_room()
            bucket = self._buckets[key] = _Bucket(limit.rate * self._saved_s_max, now)
        bucket.settle(limit.rate, self._saved_s_max, now)
        return bucket

    def limit_of(self, kind: QuotaKind, client: tuple[str, str]) -> Limit | None:
        """Return the quota that applies to a client."""
        limits = self._limits[kind]
        if not limits:
            return None
        if _is_long(*client):
            return _most_specific(limits, kind, *client)
        key = (kind, *client)
        if key not in self._found:
            if len(self._found) >= LOOKUPS_MAX:
                self._found.clear()
            self._found[key] = _most_specific(limits, kind, *client)
        return self._found[key]

    def _sweep(self, now: Millis) -> None:
        """Drop buckets that would be as full as new ones."""
        if now - self._swept_at < IDLE_MS:
            return
        self._swept_at = now
        idle = [
            key
            for key, bucket in self._buckets.items()
            if now - bucket.used_at >= IDLE_MS and bucket.balance >= 0
        ]
        for key in idle:
            del self._buckets[key]

    def _make_room(self) -> None:
        """Drop the buckets without debt; if all have one, the older half."""
        kept = {key: bucket for key, bucket in self._buckets.items() if bucket.balance < 0}
        if len(kept) >= BUCKETS_MAX:
            newest = sorted(kept, key=lambda key: kept[key].used_at)[BUCKETS_MAX // 2 :]
            kept = {key: kept[key] for key in newest}
        self._buckets = kept


def _throttle_ms(bucket: _Bucket, limit: Limit) -> int:
    if bucket.balance >= 0:
        return 0
    if limit.rate <= 0:
        return THROTTLE_MS_MAX
    return min(THROTTLE_MS_MAX, int(-bucket.balance * 1000 / limit.rate) + 1)


def _most_specific(
    limits: Mapping[Entity, float], kind: QuotaKind, user: str, client_id: str
) -> Limit | None:
    """Return the quota that applies. A default is a bucket for each user and client it covers."""
    for user_name, client_name in (
        (user, client_id),
        (user, None),
        (user, ""),
        (None, client_id),
        (None, None),
        (None, ""),
        ("", client_id),
        ("", None),
    ):
        rate = limits.get(_entity(user_name, client_name))
        if rate is not None:
            whose = None if user_name == "" else _shortened(user)
            which = None if client_name == "" else _shortened(client_id)
            return Limit((whose, which), rate * kind.per_second)
    return None


def _is_long(user: str, client_id: str) -> bool:
    return len(user) > NAME_LENGTH_MAX or len(client_id) > NAME_LENGTH_MAX


def _shortened(name: str) -> str:
    """Return a name that fits into a bucket's entity; different names stay different."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}#{digest}"


def _entity(user: str | None, client_id: str | None) -> Entity:
    """Return an entity; an empty name leaves that part out."""
    parts = ((CLIENT_ID, client_id), (USER, user))
    return tuple((kind, name) for kind, name in parts if name != "")
