"""What retention deletes, what it must never delete, and what a wrong clock does to it."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import Millis, Offset
from ottla.storage.retention import LogState, Policy, RetentionPlan, plan_retention
from ottla.storage.trusted_time import CONFIRM_MS, TOLERANCE_MS, TrustedTime

NOW = 1_000_000


class Seg(NamedTuple):
    base_offset: Offset
    size: int
    largest_timestamp: Millis


def seg(base: int, size: int = 100, age: int = 0) -> Seg:
    return Seg(Offset(base), size, Millis(NOW - age))


def plan(
    *segments: Seg,
    policy: str = "delete",
    ms: int = -1,
    size: int = -1,
    start: int = 0,
    hw: int = 100,
    end: int = 100,
) -> RetentionPlan:
    return plan_retention(
        segments,
        Policy(policy == "delete", ms, size),
        LogState(Offset(start), Offset(hw), Offset(end)),
        Millis(NOW),
    )


def test_segments_older_than_the_limit_go_from_the_front() -> None:
    done = plan(seg(0, age=30), seg(10, age=20), seg(20, age=10), seg(30), ms=15)
    assert done == RetentionPlan((Offset(0), Offset(10)), Offset(20), is_roll_needed=False)


def test_a_segment_exactly_as_old_as_the_limit_stays() -> None:
    assert plan(seg(0, age=15), seg(10), ms=15).is_empty
    assert not plan(seg(0, age=16), seg(10), ms=15).is_empty


def test_an_old_segment_behind_a_young_one_stays() -> None:
    assert plan(seg(0), seg(10, age=99), seg(20), ms=15).is_empty


def test_without_limits_nothing_goes() -> None:
    assert plan(seg(0, age=999_999), seg(10, age=999_999)).is_empty


def test_the_active_segment_goes_by_time_after_a_roll() -> None:
    done = plan(seg(0, age=30), seg(10, age=20), ms=15)
    assert done == RetentionPlan((Offset(0), Offset(10)), Offset(100), is_roll_needed=True)


def test_an_empty_active_segment_is_not_rolled_for_ever() -> None:
    done = plan(seg(0, age=30), seg(10, size=0, age=20), ms=15, end=10)
    assert done == RetentionPlan((Offset(0),), Offset(10), is_roll_needed=False)


def test_a_segment_that_compaction_emptied_does_not_hold_up_those_behind_it() -> None:
    segments = [seg(0, size=0), seg(10, age=30), seg(20)]
    assert plan(*segments, ms=15).base_offsets == (0, 10)
    assert plan(*segments, ms=-1).is_empty


def test_by_size_a_segment_goes_only_if_enough_remains() -> None:
    segments = [seg(0), seg(10), seg(20), seg(30)]
    assert plan(*segments, size=250).base_offsets == (0,)
    assert plan(*segments, size=200).base_offsets == (0, 10)
    assert plan(*segments, size=400).is_empty


def test_size_and_time_together_delete_what_either_would() -> None:
    segments = [seg(0, age=30), seg(10, age=5), seg(20), seg(30)]
    assert plan(*segments, size=200, ms=15).base_offsets == (0, 10)
    assert plan(*segments, size=380, ms=15).base_offsets == (0,)


def test_what_lies_below_the_log_start_goes_under_either_policy() -> None:
    segments = [seg(0), seg(10), seg(20)]
    for policy in ("delete", "compact"):
        assert plan(*segments, policy=policy, start=9).is_empty
        assert plan(*segments, policy=policy, start=10).base_offsets == (0,)
        done = plan(*segments, policy=policy, start=25)
        assert (done.base_offsets, done.log_start) == ((0, 10), 25)


def test_a_compacted_topic_is_not_deleted_by_time_or_size() -> None:
    assert plan(seg(0, age=99), seg(10, age=99), policy="compact", ms=15, size=0).is_empty


@pytest.mark.parametrize("limits", [{"ms": 15}, {"size": 0}, {"start": 25}])
def test_nothing_above_the_high_watermark_goes(limits: dict[str, int]) -> None:
    segments = [seg(0, age=30), seg(10, age=30), seg(20, age=30)]
    assert plan(*segments, hw=19, **limits).base_offsets == (0,)


segment_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)


@given(
    segment_lists,
    st.integers(-1, 4),
    st.integers(-1, 6),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_a_plan_is_a_replicated_prefix_and_respects_both_limits(
    shapes: list[tuple[int, int]], ms: int, size: int, start: int, high_watermark: int
) -> None:
    segments = [seg(at * 4, size=s, age=a) for at, (s, a) in enumerate(shapes)]
    end = len(segments) * 4 if segments[-1].size else segments[-1].base_offset
    state = {"start": min(start, end), "hw": min(high_watermark, end), "end": end}
    done = plan(*segments, ms=ms, size=size, **state)
    count = len(done.base_offsets)
    assert done.base_offsets == tuple(s.base_offset for s in segments[:count])
    assert done.log_start >= state["start"]
    bounds = [*(s.base_offset for s in segments[1:]), end]
    assert all(bound <= state["hw"] for bound in bounds[:count])
    assert done.is_roll_needed == (count == len(segments))
    for at in range(count):
        is_empty = segments[at].size == 0
        is_old = ms >= 0 and (is_empty or NOW - segments[at].largest_timestamp > ms)
        is_excess = size >= 0 and sum(s.size for s in segments[at + 1 :]) >= size
        assert is_old or is_excess or bounds[at] <= state["start"]


# -- the clock -----------------------------------------------------------------

HOUR, YEAR = 3_600_000, 365 * 24 * 3_600_000


class Clocks:
    def __init__(self) -> None:
        self.wall, self.monotonic = 50 * YEAR, 0
        self.trusted = TrustedTime(Millis(self.wall), Millis(0))

    def pass_time(self, ms: int, *, jump: int = 0) -> int:
        """Let ``ms`` pass, shift the wall clock by ``jump``; return how late we are then."""
        self.monotonic += ms
        self.wall += ms + jump
        return self.wall - self.trusted.now(Millis(self.wall), Millis(self.monotonic))


def test_an_honest_clock_is_followed() -> None:
    clocks = Clocks()
    assert [clocks.pass_time(HOUR) for _ in range(3)] == [0, 0, 0]


def test_small_corrections_are_followed() -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=TOLERANCE_MS) == TOLERANCE_MS
    assert clocks.pass_time(HOUR) == 0


@pytest.mark.parametrize("jump", [HOUR, YEAR, 10 * YEAR])
def test_a_jump_ahead_is_not_believed_for_a_day(jump: int) -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=jump) == jump
    assert clocks.pass_time(CONFIRM_MS - 1) == jump
    assert clocks.trusted.is_in_doubt
    assert clocks.pass_time(1) == 0
    assert not clocks.trusted.is_in_doubt


def test_a_jump_that_is_taken_back_leaves_no_trace() -> None:
    clocks = Clocks()
    clocks.pass_time(HOUR, jump=10 * YEAR)
    assert clocks.pass_time(HOUR, jump=-10 * YEAR) == 0
    assert not clocks.trusted.is_in_doubt


def test_a_jump_back_is_obeyed_at_once_because_it_deletes_less() -> None:
    clocks = Clocks()
    assert clocks.pass_time(HOUR, jump=-YEAR) == 0


def test_a_clock_that_runs_ten_times_too_fast_is_never_believed() -> None:
    clocks = Clocks()
    for _ in range(24 * 30):
        clocks.pass_time(HOUR, jump=9 * HOUR)
    late = clocks.pass_time(HOUR, jump=9 * HOUR)
    assert late == 9 * HOUR * (24 * 30 + 1)


def test_a_jump_of_ten_years_deletes_no_segment() -> None:
    clocks = Clocks()
    clocks.pass_time(HOUR, jump=10 * YEAR)
    now = clocks.trusted.now(Millis(clocks.wall), Millis(clocks.monotonic))
    young = Seg(Offset(0), 100, Millis(50 * YEAR))
    state = LogState(Offset(0), Offset(9), Offset(9))
    assert plan_retention([young], Policy(True, 7 * 24 * HOUR, -1), state, now).is_empty
