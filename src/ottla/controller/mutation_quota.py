"""How many changes a client may ask of the controller (KIP-599), as a token bucket.

The bucket fills at the rate of the quota up to its burst; a change of a partition takes one
token. It may go below zero: the last change that found a token is let through whole, however
large, and what comes after waits until the debt is paid.

A new client is told to wait and its changes are refused (strict). An old one does not know the
error, so that its changes are made, and it is told to wait all the same (permissive).

Pure: the state comes in and goes out, and so does the time, in ms of a clock that never falls.
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

# From which version of a request on its sender knows THROTTLING_QUOTA_EXCEEDED, by API key.
STRICT_SINCE: Mapping[int, int] = MappingProxyType(
    {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
)


class MutationQuota(NamedTuple):
    """A quota: changes per second, and how many seconds of them can be saved up."""

    rate: float
    burst_seconds: float

    @property
    def burst(self) -> float:
        """The most tokens that the bucket holds."""
        return self.rate * self.burst_seconds


class TokenBucket(NamedTuple):
    """What is left at a time. Below zero is a debt."""

    tokens: float
    at: Millis


class Charge(NamedTuple):
    """The bucket after a request, whether its changes may be made, and how long to wait."""

    bucket: TokenBucket
    is_allowed: bool
    throttle_ms: int


def is_strict(api_key: int, version: int) -> bool:
    """Whether the sender of such a request understands that its changes are refused."""
    return api_key in STRICT_SINCE and version >= STRICT_SINCE[api_key]


def full(quota: MutationQuota, now: Millis) -> TokenBucket:
    """Return the bucket of a client that is new."""
    return TokenBucket(quota.burst, now)


def refilled(bucket: TokenBucket, quota: MutationQuota, now: Millis) -> TokenBucket:
    """Return the bucket as it is now. A quota that shrank takes what is over its burst."""
    at = Millis(max(now, bucket.at))
    tokens = min(quota.burst, bucket.tokens + quota.rate * (at - bucket.at) / 1000)
    return TokenBucket(tokens, at)


def charge(
    bucket: TokenBucket, quota: MutationQuota, mutations: float, now: Millis, strict: bool
) -> Charge:
    """Take the tokens of a request's changes."""
    found = refilled(bucket, quota, now)
    if strict and found.tokens < 0:
        return Charge(found, False, throttle_ms(found, quota))
    left = TokenBucket(found.tokens - mutations, found.at)
    return Charge(left, True, 0 if strict else throttle_ms(left, quota))


def throttle_ms(bucket: TokenBucket, quota: MutationQuota) -> int:
    """Return how long it takes until the debt is paid."""
    return round(max(0.0, -bucket.tokens) / quota.rate * 1000)


def refusal_of(charged: Charge) -> Refusal | None:
    """Return what to answer for a change that may not be made."""
    if charged.is_allowed:
        return None
    message = f"Too many changes: wait {charged.throttle_ms} ms"
    return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
