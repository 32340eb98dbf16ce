from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.server.admission import (
    BUCKETS_MAX,
    DELAY_MS_MAX,
    Admission,
    AdmissionLimits,
    Admitted,
    ExceededLimit,
    plain_ip,
)


def admitted(decision: Admitted | ExceededLimit) -> Admitted:
    assert isinstance(decision, Admitted)
    return decision


def test_connection_rejected_by_one_limit_is_not_counted_by_the_others() -> None:
    admission = Admission(
        AdmissionLimits(connections_max=2, per_ip_max=1, per_listener_max={"B": 0})
    )
    place = admitted(admission.admit("10.0.0.1", "A", 0))
    for _ in range(5):
        assert admission.admit("10.0.0.1", "A", 0) is ExceededLimit.ADDRESS
        assert admission.admit("10.0.0.2", "B", 0) is ExceededLimit.LISTENER
    other = admitted(admission.admit("10.0.0.2", "A", 0))
    assert admission.admit("10.0.0.3", "A", 0) is ExceededLimit.CONNECTIONS
    admission.release(place)
    admission.release(other)
    assert admission.describe() == {"total": 0}, "no entry is left for an address without any"


def test_override_replaces_the_limit_of_its_address() -> None:
    limits = AdmissionLimits(per_ip_max=1, per_ip_overrides={"10.0.0.9": 3, "10.0.0.8": 0})
    admission = Admission(limits)
    for _ in range(3):
        admitted(admission.admit("10.0.0.9", "A", 0))
    assert admission.admit("10.0.0.9", "A", 0) is ExceededLimit.ADDRESS
    assert admission.admit("10.0.0.8", "A", 0) is ExceededLimit.ADDRESS


def test_ipv4_and_mapped_ipv6_address_share_one_limit() -> None:
    assert plain_ip("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_ip("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1"
    assert plain_ip("2001:DB8::0:1") == "2001:db8:0:0:0:0:0:1"
    assert plain_ip("not an address") == "not an address"
    admission = Admission(AdmissionLimits(per_ip_max=1))
    admitted(admission.admit("10.0.0.1", "A", 0))
    assert admission.admit("::ffff:10.0.0.1", "A", 0) is ExceededLimit.ADDRESS


def delays(rate: int, times: list[int]) -> list[int]:
    admission = Admission(AdmissionLimits(rate_of_listener=lambda name: rate))
    return [admitted(admission.admit("10.0.0.1", "A", now)).delay_ms for now in times]


def test_burst_up_to_the_rate_is_not_delayed_and_later_connections_are() -> None:
    assert delays(4, [0] * 7) == [0, 0, 0, 0, 250, 500, 750]


def test_delay_is_at_most_a_second_and_the_debt_is_paid_off() -> None:
    assert delays(2, [0] * 10) == [0, 0, 500] + [1000] * 7
    assert delays(2, [0] * 10 + [2000, 3000]) == [0, 0, 500] + [1000] * 7 + [0, 0]


def test_delayed_connection_has_taken_its_token() -> None:
    # Without that the second would pay for the first and the third for nobody.
    assert delays(1, [0, 0, 500, 1000]) == [0, 1000, 1000, 1000]


def test_rate_of_zero_means_no_limit() -> None:
    assert delays(0, [0] * 5) == [0] * 5
    assert delays(-1, [0] * 5) == [0] * 5


def test_rate_of_an_address_delays_only_its_own_connections() -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: 2))
    found = [admitted(admission.admit("10.0.0.1", "A", 0)) for _ in range(4)]
    assert [each.delay_ms for each in found] == [0, 0, 500, 1000]
    assert admitted(admission.admit("::1", "A", 0)).delay_ms == 0


def test_listener_rate_counts_all_addresses_and_the_longer_delay_applies() -> None:
    admission = Admission(
        AdmissionLimits(rate_of_listener=lambda name: 1, rate_of_ip=lambda ip: 10)
    )
    waits = [admitted(admission.admit(f"10.0.0.{n}", "A", 0)).delay_ms for n in range(2)]
    assert waits == [0, 1000]


def test_buckets_of_past_addresses_are_dropped() -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: 1))
    for n in range(BUCKETS_MAX + 500):
        ip = f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"
        admission.release(admitted(admission.admit(ip, "A", n)))
    assert len(admission._buckets) <= BUCKETS_MAX


@given(st.integers(1, 50), st.lists(st.integers(0, 300), min_size=1, max_size=60))
def test_connections_without_delay_never_exceed_the_rate(rate: int, gaps: list[int]) -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: rate))
    now = free = 0
    for gap in gaps:
        now += gap
        delay = admitted(admission.admit("10.0.0.1", "A", now)).delay_ms
        assert 0 <= delay <= DELAY_MS_MAX
        free += delay == 0
    assert free <= rate + now * rate / 1000 + 1


@given(st.integers(1, 50), st.lists(st.integers(0, 300), min_size=1, max_size=200))
def test_served_connections_never_exceed_the_rate(rate: int, gaps: list[int]) -> None:
    """However many connect at once: what is above the rate for longer than a second is refused."""
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: rate))
    now, served_at = 0, []
    for gap in gaps:
        now += gap * (len(served_at) % 7 == 0)  # many at once, and then a pause
        found = admitted(admission.admit("10.0.0.1", "A", now))
        if found.is_refused:
            assert found.delay_ms == DELAY_MS_MAX
        else:
            served_at.append(now + found.delay_ms)
    for number, time in enumerate(sorted(served_at), 1):
        assert number <= rate + time * rate / 1000 + 1


def test_connection_whose_token_takes_too_long_is_refused_and_takes_none() -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: 5))
    found = [admitted(admission.admit("10.0.0.1", "A", 0)) for _ in range(31)]
    assert [each.is_refused for each in found] == [False] * 10 + [True] * 21
    assert not admitted(admission.admit("10.0.0.1", "A", 200)).is_refused


class Counts(RuleBasedStateMachine):
    """Two addresses, two listeners, small limits: the counts equal what is really open."""

    def __init__(self) -> None:
        super().__init__()
        limits = AdmissionLimits(connections_max=4, per_ip_max=3, per_listener_max={"B": 2})
        self.admission = Admission(limits)
        self.open: list[Admitted] = []

    @rule(ip=st.sampled_from(["10.0.0.1", "0:0:0:0:0:0:0:1"]), listener=st.sampled_from(["A", "B"]))
    def connect(self, ip: str, listener: str) -> None:
        full = {
            ExceededLimit.CONNECTIONS: len(self.open) >= 4,
            ExceededLimit.LISTENER: listener == "B" and self._count(listener=listener) >= 2,
            ExceededLimit.ADDRESS: self._count(ip=ip) >= 3,
        }
        decision = self.admission.admit(ip, listener, 0)
        expected = next((refusal for refusal, is_full in full.items() if is_full), None)
        if isinstance(decision, Admitted):
            assert expected is None
            self.open.append(decision)
        else:
            assert decision is expected

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        if self.open:
            index = data.draw(st.integers(0, len(self.open) - 1))
            self.admission.release(self.open.pop(index))

    def _count(self, ip: str = "", listener: str = "") -> int:
        return sum(p.ip == ip or p.listener == listener for p in self.open)

    @invariant()
    def counts_are_what_is_open(self) -> None:
        ips = {place.ip for place in self.open}
        assert self.admission.describe() == {
            "total": len(self.open),
            **{ip: self._count(ip=ip) for ip in ips},
        }


TestCounts = Counts.TestCase


def test_node_limits_do_not_apply_to_protected_listeners() -> None:
    limits = AdmissionLimits(connections_max=1, rate_max=1, protected=frozenset({"PEERS"}))
    admission = Admission(limits)
    assert isinstance(admission.admit("10.0.0.1", "CLIENT", 0), Admitted)
    assert admission.admit("10.0.0.1", "CLIENT", 0) is ExceededLimit.CONNECTIONS
    for _ in range(5):
        assert admission.admit("10.0.0.2", "PEERS", 0) == Admitted("10.0.0.2", "PEERS", 0)


def test_node_rate_counts_connections_of_all_listeners() -> None:
    admission = Admission(AdmissionLimits(rate_max=2))
    listeners = ["A", "B", "A", "B"]
    replies = [admission.admit("10.0.0.1", listener, 0) for listener in listeners]
    assert [each.delay_ms for each in replies if isinstance(each, Admitted)] == [0, 0, 500, 1000]
