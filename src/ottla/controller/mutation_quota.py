"""The controller mutation quota (KIP-599), as a token bucket.

The bucket fills at the rate of the quota up to its burst; a change of a partition takes one token.
The bucket may go below zero: a change that finds at least one token is allowed whole, however
large, and later ones wait until the debt is paid.

A new client is throttled and its changes are rejected (strict). An old client does not know the
error, so its changes are made and it is throttled all the same (permissive).

`mutation_quotas.py` keeps the buckets. Pure: state and time are passed in and returned; times are
ms of a monotonic clock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.controller.decision import Refusal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis

CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_PARTITIONS = 37

# The request version from which on the sender knows THROTTLING_QUOTA_EXCEEDED, by API key.
STRICT_SINCE: Mapping[int, int] = MappingProxyType(
    {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
)


class MutationQuota(NamedTuple):
    """A quota: changes per second, and how many seconds of them can be saved up."""

    rate: float
    burst_seconds: float

    @property
    def burst(self) -> float:
        """The capacity of the bucket in tokens."""
        return self.rate * self.burst_seconds


class TokenBucket(NamedTuple):
    """The tokens left at a time. A negative number is a debt."""

    tokens: float
    at: Millis


class Charge(NamedTuple):
    """The bucket after a request, whether its changes are allowed, and the throttle time."""

    bucket: TokenBucket
    is_allowed: bool
    throttle_ms: int


def is_strict(api_key: int, version: int) -> bool:
    """Return whether the sender of such a request understands that its changes are rejected."""
    return api_key in STRICT_SINCE and version >= STRICT_SINCE[api_key]


def full(quota: MutationQuota, now: Millis) -> TokenBucket:
    """Return the bucket of a new client."""
    return TokenBucket(quota.burst, now)


def refilled(bucket: TokenBucket, quota: MutationQuota, now: Millis) -> TokenBucket:
    """Return the bucket as it is now. A smaller quota also lowers the tokens to its burst."""
    at = Millis(max(now, bucket.at))
    tokens = min(quota.burst, bucket.tokens + quota.rate * (at - bucket.at) / 1000)
    return TokenBucket(tokens, at)


def charge(
    bucket: TokenBucket, quota: MutationQuota, mutations: float, now: Millis, strict: bool
) -> Charge:
    """Take the tokens for a request's changes."""
    found = refilled(bucket, quota, now)
    if strict and found.tokens < 0:
        return Charge(found, False, throttle_ms(found, quota))
    left = TokenBucket(found.tokens - mutations, found.at)
    return Charge(left, True, 0 if strict else throttle_ms(left, quota))


def throttle_ms(bucket: TokenBucket, quota: MutationQuota) -> int:
    """Return how long it takes to pay the debt."""
    return round(max(0.0, -bucket.tokens) / quota.rate * 1000)


def refusal_of(charged: Charge) -> Refusal | None:
    """Return the error for a change that is not allowed, or None."""
    if charged.is_allowed:
        return None
    message = f"The controller mutation quota is exceeded: retry after {charged.throttle_ms} ms"
    return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
