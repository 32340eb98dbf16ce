"""Client quotas: which one applies, and how long a client is throttled."""

import pytest

from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import (
    IDLE_MS,
    LOOKUPS_MAX,
    THROTTLE_MS_MAX,
    ClientQuotas,
    QuotaKind,
)

PRODUCE = QuotaKind.PRODUCE
T0 = Millis(1_000)


def entity(**parts: str | None) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((key.replace("_", "-"), name) for key, name in parts.items()))


# In Kafka's order: each row wins over those below it.
ORDER = [
    entity(user="u", client_id="c"),
    entity(user="u", client_id=None),
    entity(user="u"),
    entity(user=None, client_id="c"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="c"),
    entity(client_id=None),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_most_specific_quota_applies(first: int) -> None:
    quotas = ClientQuotas()
    quotas.update(
        {each: {"producer_byte_rate": 100.0 * (n + 1)} for n, each in enumerate(ORDER[first:])}
    )
    # The first quota of 100 bytes per second, of which one second is saved up.
    assert quotas.charge(PRODUCE, ("u", "c"), 100, T0) == 0
    assert quotas.charge(PRODUCE, ("u", "c"), 100, T0) == 1001


def test_quota_of_somebody_else_does_not_apply() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="v"): {"producer_byte_rate": 1.0}})
    assert quotas.charge(PRODUCE, ("u", "c"), 10**9, T0) == 0
    assert not quotas.is_limited(QuotaKind.FETCH) and quotas.is_limited(PRODUCE)


def test_clients_of_a_user_share_its_bucket_and_defaults_are_one_each() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="u"): {"producer_byte_rate": 100.0}})
    quotas.charge(PRODUCE, ("u", "a"), 200, T0)
    assert quotas.throttle_ms(PRODUCE, ("u", "b"), T0) > 0
    quotas.update({entity(client_id=None): {"producer_byte_rate": 100.0}})
    quotas.charge(PRODUCE, ("x", "a"), 200, T0)
    assert quotas.throttle_ms(PRODUCE, ("y", "a"), T0) > 0
    assert quotas.throttle_ms(PRODUCE, ("y", "b"), T0) == 0


def test_client_that_waits_as_told_keeps_its_rate() -> None:
    quotas, now, sent = ClientQuotas(), T0, 0
    quotas.update({entity(user="u"): {"producer_byte_rate": 1_000_000.0}})
    while now < T0 + 20_000:
        wait = quotas.charge(PRODUCE, ("u", "c"), 70_000, now)
        sent += 70_000
        now = Millis(now + max(wait, 1))
    assert sent / 20 == pytest.approx(1_000_000, rel=0.06)


def test_request_percentage_is_time_of_one_thread() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="u"): {"request_percentage": 50.0}})
    assert quotas.charge(QuotaKind.REQUEST, ("u", ""), 500, T0) == 0
    assert quotas.charge(QuotaKind.REQUEST, ("u", ""), 250, T0) == 501
    # At most one window, however large the debt is.
    assert quotas.charge(QuotaKind.REQUEST, ("u", ""), 5000, T0) == 1000


def test_one_throttle_is_bounded_and_the_debt_remains() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="u"): {"producer_byte_rate": 1.0}})
    assert quotas.charge(PRODUCE, ("u", ""), 10**9, T0) == THROTTLE_MS_MAX
    later = Millis(T0 + THROTTLE_MS_MAX)
    assert quotas.throttle_ms(PRODUCE, ("u", ""), later) == THROTTLE_MS_MAX


def test_debt_survives_a_change_of_quota_and_a_quota_that_went_throttles_nobody() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="u"): {"producer_byte_rate": 100.0}})
    quotas.charge(PRODUCE, ("u", ""), 1100, T0)
    quotas.update({entity(user="u"): {"producer_byte_rate": 1000.0}})
    assert quotas.throttle_ms(PRODUCE, ("u", ""), T0) == 1001
    quotas.update({})
    assert quotas.throttle_ms(PRODUCE, ("u", ""), T0) == 0


def test_idle_buckets_and_lookups_are_dropped() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(client_id=None): {"producer_byte_rate": 100.0}})
    for number in range(LOOKUPS_MAX + 5):
        quotas.charge(PRODUCE, ("u", str(number)), 1, T0)
    assert len(quotas._found) <= LOOKUPS_MAX
    quotas.charge(PRODUCE, ("u", "last"), 1, Millis(T0 + 2 * IDLE_MS))
    assert len(quotas._buckets) == 1
