"""The time that expiry goes by, and what a clock that jumps does to each thing that expires."""

import pytest
from classic_harness import Harness as GroupWorld
from hypothesis import given
from hypothesis import strategies as st
from transaction_harness import P0, Transactor
from transaction_harness import Harness as TransactionHarness

from ottla.coordinators.transactions.transaction import Status
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.types import Millis, Offset
from ottla.runtime.trusted_time import (
    CONFIRM_MS,
    TOLERANCE_MS,
    WINDOW_MS,
    TrustedClock,
    TrustedTime,
)
from ottla.storage.log.retention import LogState, Policy, plan_retention

SECOND, HOUR, DAY, YEAR = 1000, 3_600_000, 24 * 3_600_000, 365 * 24 * 3_600_000


class Clocks:
    def __init__(self) -> None:
        self.wall, self.monotonic = 50 * YEAR, 0
        self.trusted = TrustedTime(Millis(self.wall), Millis(0))

    def pass_time(self, ms: int, *, jump: int = 0) -> int:
        """Let ``ms`` pass, shift the wall clock by ``jump``; return how late expiry is then."""
        self.monotonic += ms
        self.wall += ms + jump
        return self.wall - self.trusted.expiry(Millis(self.wall), Millis(self.monotonic))

    @property
    def stamp(self) -> int:
        return self.trusted.stamp(Millis(self.wall), Millis(self.monotonic))


def test_steady_clock_is_followed() -> None:
    clocks = Clocks()
    assert [clocks.pass_time(HOUR) for _ in range(3)] == [0, 0, 0]


def test_small_correction_is_followed() -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=TOLERANCE_MS) == 0
    assert clocks.pass_time(HOUR) == 0


@pytest.mark.parametrize("jump", [HOUR, YEAR, 10 * YEAR])
def test_jump_ahead_is_not_trusted_for_a_day(jump: int) -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=jump) == jump
    assert clocks.pass_time(CONFIRM_MS - 1) == jump
    assert clocks.trusted.is_in_doubt
    assert clocks.pass_time(1) == 0
    assert not clocks.trusted.is_in_doubt


def test_jump_that_is_reverted_has_no_effect() -> None:
    clocks = Clocks()
    clocks.pass_time(HOUR, jump=10 * YEAR)
    assert clocks.pass_time(HOUR, jump=-10 * YEAR) == 0
    assert not clocks.trusted.is_in_doubt


def test_expiry_follows_a_jump_back_at_once_because_it_deletes_less() -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=-YEAR) == 0


def test_stamp_does_not_follow_a_jump_back_until_it_is_confirmed() -> None:
    clocks = Clocks()
    clocks.pass_time(HOUR, jump=-YEAR)
    assert clocks.stamp == clocks.wall + YEAR
    clocks.pass_time(CONFIRM_MS)
    assert clocks.stamp == clocks.wall


@pytest.mark.parametrize("read_every_ms", [SECOND, HOUR])
def test_clock_that_runs_ten_times_too_fast_is_never_trusted(read_every_ms: int) -> None:
    clocks = Clocks()
    late = 0
    for _ in range(2 * DAY // SECOND if read_every_ms == SECOND else 24 * 30):
        late = clocks.pass_time(read_every_ms, jump=9 * read_every_ms)
    gained = clocks.wall - 50 * YEAR - clocks.monotonic
    assert gained - late <= TOLERANCE_MS


def test_slow_drift_is_followed() -> None:
    clocks = Clocks()
    for _ in range(2 * DAY // WINDOW_MS):
        assert clocks.pass_time(WINDOW_MS, jump=TOLERANCE_MS) == 0


def test_jump_of_ten_years_deletes_no_segment() -> None:
    class Segment:
        base_offset, size, largest_timestamp = Offset(0), 100, Millis(50 * YEAR)

    clocks = Clocks()
    clocks.pass_time(HOUR, jump=10 * YEAR)
    now = clocks.trusted.expiry(Millis(clocks.wall), Millis(clocks.monotonic))
    state = LogState(Offset(0), Offset(9), Offset(9))
    assert plan_retention([Segment()], Policy(True, 7 * DAY, -1), state, now).is_empty


@given(st.lists(st.tuples(st.integers(0, HOUR), st.integers(-YEAR, YEAR)), max_size=20))
def test_expiry_is_never_after_the_wall_clock_and_the_stamp_never_before(
    moves: list[tuple[int, int]],
) -> None:
    clocks = Clocks()
    for ms, jump in moves:
        assert clocks.pass_time(ms, jump=jump) >= 0
        assert clocks.stamp >= clocks.wall


def test_node_shares_one_trusted_clock() -> None:
    clock = TrustedClock.of(GroupWorld().clock)
    assert TrustedClock.of(clock) is clock


# -- coordinators --------------------------------------------------------------------------


def offset_of(harness: GroupWorld) -> object:
    return harness.machine.offsets.get("g", ("t", 0))


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY])
def test_committed_offset_survives_a_clock_jump_that_returns(jump: int) -> None:
    harness = GroupWorld()  # offsets.retention is 100 s, looked at every 10 s
    harness.commit(1)
    harness.clock.wall += jump
    harness.pass_ms(20_000)
    harness.clock.wall -= jump
    harness.pass_ms(20_000)
    assert offset_of(harness) is not None
    harness.pass_ms(100_000)
    assert offset_of(harness) is None


def test_offset_committed_while_the_clock_is_set_back_survives_its_return() -> None:
    harness = GroupWorld()
    harness.clock.wall -= 8 * DAY
    harness.commit(1)
    harness.clock.wall += 8 * DAY
    harness.pass_ms(20_000)
    assert offset_of(harness) is not None


def test_committed_offset_expires_by_a_clock_that_stays_ahead_for_a_day() -> None:
    harness = GroupWorld()
    harness.pass_ms(10_000)
    harness.clock.wall += 8 * DAY
    harness.commit(1)  # dated by the later time, so it is kept for longer, not for less
    harness.pass_ms(CONFIRM_MS - 10_000)
    assert offset_of(harness) is not None
    harness.pass_ms(200_000)
    assert offset_of(harness) is None


def transactional_ids(harness: TransactionHarness) -> list[str]:
    return list(harness.machine.transactions)


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY])
def test_transactional_id_survives_a_clock_jump_that_returns(jump: int) -> None:
    harness = TransactionHarness(expiration_ms=100_000, expire_interval_ms=10_000)
    harness.init(InitProducerIdRequest("x", 1000, -1, -1))
    harness.clock.wall += jump
    harness.wait(10_000)
    harness.clock.wall -= jump
    harness.wait(10_000)
    assert transactional_ids(harness) == ["x"]
    for _ in range(10):
        harness.wait(10_000)
    assert transactional_ids(harness) == []


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY])
def test_transaction_timeout_does_not_follow_the_wall_clock(jump: int) -> None:
    harness = TransactionHarness(abort_interval_ms=10_000)
    client = Transactor(harness, 2)
    client.init()
    client.produce(P0, "a")
    harness.wait(10_000)
    harness.clock.wall += jump
    for _ in range(4):
        harness.wait(10_000)
        assert harness.state().status is Status.ONGOING
    for _ in range(2):
        harness.wait(10_000)
    assert harness.state().status is Status.PREPARE_ABORT


def test_clock_in_doubt_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Clock:
        wall = 50 * YEAR
        since = 0

        def now(self) -> Millis:
            return Millis(self.wall)

        def monotonic(self) -> Millis:
            return Millis(self.since)

    clock = Clock()
    trusted = TrustedClock(clock)
    with caplog.at_level("INFO", logger="ottla.runtime.trusted_time"):
        trusted.expiry()
        clock.wall += 8 * DAY
        for _ in range(3):
            trusted.expiry()
            trusted.stamp()
            clock.wall += HOUR  # further jumps are part of the same doubt
        clock.wall -= 8 * DAY + 3 * HOUR
        trusted.times()
        trusted.times()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, lines
    assert f"jump_ms={8 * DAY}" in lines[0]
    assert "trusted again" in lines[1]
