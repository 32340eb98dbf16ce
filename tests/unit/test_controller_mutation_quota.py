"""The token bucket of the controller mutation quota (KIP-599)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.mutation_quota import (
    MutationQuota,
    TokenBucket,
    charge,
    full,
    is_strict,
    refilled,
    refusal_of,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis

# The example of the KIP: 5 a second, 100 seconds of them.
QUOTA = MutationQuota(5.0, 100.0)
START = Millis(0)


def test_change_that_finds_a_token_is_allowed_whole() -> None:
    charged = charge(full(QUOTA, START), QUOTA, 560, START, strict=True)
    assert (charged.is_allowed, charged.throttle_ms) == (True, 0)
    assert charged.bucket.tokens == -60


def test_changes_are_rejected_until_the_debt_is_paid() -> None:
    owing = TokenBucket(-60, START)
    charged = charge(owing, QUOTA, 1, START, strict=True)
    assert (charged.is_allowed, charged.throttle_ms) == (False, 12_000)
    assert charged.bucket == owing
    refusal = refusal_of(charged)
    assert refusal is not None
    assert refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert not charge(owing, QUOTA, 1, Millis(11_999), strict=True).is_allowed
    assert charge(owing, QUOTA, 1, Millis(12_000), strict=True).is_allowed


def test_old_client_is_throttled_but_served() -> None:
    charged = charge(TokenBucket(-60, START), QUOTA, 5, START, strict=False)
    assert (charged.is_allowed, charged.throttle_ms) == (True, 13_000)
    assert charged.bucket.tokens == -65
    assert refusal_of(charged) is None
    assert charge(full(QUOTA, START), QUOTA, 5, START, strict=False).throttle_ms == 0


def test_smaller_quota_lowers_tokens_to_its_burst() -> None:
    smaller = MutationQuota(1.0, 100.0)
    assert refilled(full(QUOTA, START), smaller, START).tokens == 100


def test_clock_that_does_not_advance_adds_no_tokens() -> None:
    bucket = TokenBucket(3, Millis(100))
    assert refilled(bucket, QUOTA, Millis(100)).tokens == 3
    assert refilled(bucket, QUOTA, Millis(50)) == bucket


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [
        (19, 5, False),
        (19, 6, True),
        (20, 4, False),
        (20, 5, True),
        (37, 2, False),
        (37, 3, True),
        (3, 12, False),
    ],
)
def test_request_versions_with_the_quota_error(api_key: int, version: int, expected: bool) -> None:
    assert is_strict(api_key, version) is expected


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 50)), max_size=40))
def test_allowed_changes_are_bounded_by_burst_rate_and_one_request(
    steps: list[tuple[int, int]],
) -> None:
    quota = MutationQuota(2.0, 5.0)
    bucket, now, made, largest = full(quota, START), 0, 0, 0
    for wait, mutations in steps:
        now += wait
        charged = charge(bucket, quota, mutations, Millis(now), strict=True)
        bucket = charged.bucket
        made += mutations if charged.is_allowed else 0
        largest = max(largest, mutations)
        assert made <= quota.burst + quota.rate * now / 1000 + largest + 1e-6
        assert bucket.tokens <= quota.burst
