"""Client quotas: which one applies, and how long a client is throttled."""

import pytest

from ottla.node.security.client_quotas import quota_families
from ottla.protocol.types import Millis
from ottla.quotas import client_quotas
from ottla.quotas.client_quotas import (
    IDLE_MS,
    LOOKUPS_MAX,
    THROTTLE_MS_MAX,
    ClientQuotas,
    ClientUsage,
    QuotaKind,
)
from ottla.quotas.usage_metrics import Window

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


def test_client_that_obeys_the_throttle_keeps_its_rate() -> None:
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


def test_whether_a_quota_applies_follows_every_change() -> None:
    quotas = ClientQuotas()
    for limits in ({}, {entity(user="u"): {"consumer_byte_rate": 1.0}}, {}):
        quotas.update(limits)
        for _ in range(2):  # looked up, then remembered
            assert quotas.applies("User:u", "c") is bool(limits)
            assert not quotas.applies("User:v", "c")


def test_quota_of_zero_throttles_for_as_long_as_possible() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(user="u"): {"producer_byte_rate": 0.0}})
    assert quotas.charge(PRODUCE, ("u", ""), 1, T0) == THROTTLE_MS_MAX


@pytest.mark.slow
def test_idle_buckets_and_lookups_are_dropped() -> None:
    quotas = ClientQuotas()
    quotas.update({entity(client_id=None): {"producer_byte_rate": 100.0}})
    for number in range(LOOKUPS_MAX + 5):
        quotas.charge(PRODUCE, ("u", str(number)), 1, T0)
    assert len(quotas._found) <= LOOKUPS_MAX
    quotas.charge(PRODUCE, ("u", "last"), 1, Millis(T0 + 2 * IDLE_MS))
    assert len(quotas._buckets) == 1


def test_idle_client_may_use_the_windows_that_kafka_averages_over() -> None:
    quotas = ClientQuotas(Window(size_ms=2000, kept=6))
    quotas.update({entity(user="u"): {"producer_byte_rate": 1000.0}})
    assert quotas.amount_max(PRODUCE, ("u", "")) == 10_000
    assert quotas.charge(PRODUCE, ("u", ""), 10_000, T0) == 0
    assert quotas.charge(PRODUCE, ("u", ""), 1000, T0) == 1001, "then it is throttled by its debt"
    long_after = Millis(T0 + 1_000_000)
    assert quotas.charge(PRODUCE, ("u", ""), 10_000, long_after) == 0, "no more is saved up"
    assert quotas.charge(PRODUCE, ("u", ""), 1000, long_after) == 1001


def test_single_window_saves_up_one() -> None:
    assert Window(size_ms=3000, kept=1).credit_s == 3.0
    assert Window(size_ms=1000, kept=11).credit_s == 10.0


def test_request_time_throttles_for_one_window_at_most() -> None:
    quotas = ClientQuotas(Window(size_ms=1000, kept=11))
    quotas.update({entity(user="u"): {"request_percentage": 1.0}})
    assert quotas.charge(QuotaKind.REQUEST, ("u", ""), 1_000_000, T0) == 1000


def test_buckets_are_bounded_and_debts_are_kept_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "BUCKETS_MAX", 10)
    quotas = ClientQuotas()
    quotas.update({entity(client_id=None): {"producer_byte_rate": 100.0}})
    quotas.charge(PRODUCE, ("u", "debtor"), 1000, T0)
    for number in range(100):
        quotas.charge(PRODUCE, ("u", str(number)), 1, T0)
        assert len(quotas._buckets) <= 10
    assert quotas.throttle_ms(PRODUCE, ("u", "debtor"), T0) > 0
    for number in range(100):
        quotas.charge(PRODUCE, ("u", f"in debt {number}"), 1000, Millis(T0 + 1 + number))
        assert len(quotas._buckets) <= 10
    assert quotas.throttle_ms(PRODUCE, ("u", "in debt 99"), Millis(T0 + 101)) > 0


def test_usage_is_the_rate_of_the_last_windows_and_the_average_throttle_time() -> None:
    quotas = ClientQuotas(Window(size_ms=1000, kept=3))
    quotas.update({entity(user=None): {"producer_byte_rate": 1000.0}})
    assert quotas.usage(PRODUCE, T0, 10) == []
    start = Millis(10_000)
    quotas.charge(PRODUCE, ("u", "c"), 1500, start)
    quotas.charge(PRODUCE, ("u", "c"), 1500, Millis(start + 1000))
    assert quotas.usage(PRODUCE, Millis(start + 1000), 10) == [ClientUsage("u", "", 1500, 0)]
    throttles = [quotas.charge(PRODUCE, ("u", "c"), each, Millis(start + 2000)) for each in (1, 9)]
    (used,) = quotas.usage(PRODUCE, Millis(start + 2000), 10)
    assert (used.rate, used.throttle_ms) == (1505, sum(throttles) / 2)
    (used,) = quotas.usage(PRODUCE, Millis(start + 60_000), 10)
    assert (used.rate, used.throttle_ms) == (0, 0), "what is older than the windows is forgotten"
    quotas.charge(PRODUCE, ("v", "c"), 1, Millis(start + 60_000))
    assert [each.user for each in quotas.usage(PRODUCE, Millis(start + 60_000), 1)] == ["v"]


def test_metrics_name_users_and_client_ids_with_a_quota() -> None:
    quotas = ClientQuotas(Window(size_ms=1000, kept=2))
    quotas.update(
        {
            entity(user="u"): {"producer_byte_rate": 100.0, "request_percentage": 50.0},
            entity(client_id="c"): {"consumer_byte_rate": 100.0},
        }
    )
    now = Millis(5000)
    quotas.charge(PRODUCE, ("u", "x"), 300, now)
    quotas.charge(QuotaKind.REQUEST, ("u", "x"), 250, now)
    quotas.charge(QuotaKind.FETCH, ("v", "c"), 50, now)
    found = {
        (family.name, sample.labels): sample.value
        for family in quota_families(quotas, lambda: now)
        for sample in family.samples
    }
    user, client = (("client_id", ""), ("user", "u")), (("client_id", "c"), ("user", ""))
    assert found == {
        ("kafka_server_produce_byte_rate", user): 300,
        ("kafka_server_produce_throttle_time", user): 2001,
        ("kafka_server_fetch_byte_rate", client): 50,
        ("kafka_server_fetch_throttle_time", client): 0,
        ("kafka_server_request_request_time", user): 25,
        ("kafka_server_request_throttle_time", user): 0,
    }
