"""What retention deletes, what it never deletes, and the effect of a wrong clock."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import Millis, Offset
from ottla.storage.log.retention import LogState, Policy, RetentionPlan, plan_retention

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
    remote_end: int | None = None,
) -> RetentionPlan:
    return plan_retention(
        segments,
        Policy(policy == "delete", ms, size),
        LogState(
            Offset(start),
            Offset(hw),
            Offset(end),
            None if remote_end is None else Offset(remote_end),
        ),
        Millis(NOW),
    )


def test_segments_older_than_the_limit_are_deleted_from_the_front() -> None:
    done = plan(seg(0, age=30), seg(10, age=20), seg(20, age=10), seg(30), ms=15)
    assert done == RetentionPlan((Offset(0), Offset(10)), Offset(20), is_roll_needed=False)


def test_segment_exactly_as_old_as_the_limit_stays() -> None:
    assert plan(seg(0, age=15), seg(10), ms=15).is_empty
    assert not plan(seg(0, age=16), seg(10), ms=15).is_empty


def test_old_segment_after_a_young_one_stays() -> None:
    assert plan(seg(0), seg(10, age=99), seg(20), ms=15).is_empty


def test_nothing_is_deleted_without_limits() -> None:
    assert plan(seg(0, age=999_999), seg(10, age=999_999)).is_empty


def test_active_segment_is_deleted_by_time_after_a_roll() -> None:
    done = plan(seg(0, age=30), seg(10, age=20), ms=15)
    assert done == RetentionPlan((Offset(0), Offset(10)), Offset(100), is_roll_needed=True)


def test_empty_active_segment_is_not_rolled_for_ever() -> None:
    done = plan(seg(0, age=30), seg(10, size=0, age=20), ms=15, end=10)
    assert done == RetentionPlan((Offset(0),), Offset(10), is_roll_needed=False)


def test_segment_emptied_by_compaction_does_not_block_later_ones() -> None:
    segments = [seg(0, size=0), seg(10, age=30), seg(20)]
    assert plan(*segments, ms=15).base_offsets == (0, 10)
    assert plan(*segments, ms=-1).is_empty


def test_segment_is_deleted_by_size_only_if_enough_remains() -> None:
    segments = [seg(0), seg(10), seg(20), seg(30)]
    assert plan(*segments, size=250).base_offsets == (0,)
    assert plan(*segments, size=200).base_offsets == (0, 10)
    assert plan(*segments, size=400).is_empty


def test_size_and_time_together_delete_what_either_would() -> None:
    segments = [seg(0, age=30), seg(10, age=5), seg(20), seg(30)]
    assert plan(*segments, size=200, ms=15).base_offsets == (0, 10)
    assert plan(*segments, size=380, ms=15).base_offsets == (0,)


def test_segments_below_the_log_start_are_deleted_under_either_policy() -> None:
    segments = [seg(0), seg(10), seg(20)]
    for policy in ("delete", "compact"):
        assert plan(*segments, policy=policy, start=9).is_empty
        assert plan(*segments, policy=policy, start=10).base_offsets == (0,)
        done = plan(*segments, policy=policy, start=25)
        assert (done.base_offsets, done.log_start) == ((0, 10), 25)


def test_segment_that_is_not_in_remote_storage_yet_stays() -> None:
    segments = (seg(0, age=99), seg(10, age=99), seg(20, age=99), seg(30))
    for limits in ({"ms": 15}, {"size": 1}):
        assert plan(*segments, remote_end=0, **limits).is_empty
        assert plan(*segments, remote_end=19, **limits).base_offsets == (0,)
        assert plan(*segments, remote_end=30, **limits).base_offsets[:3] == (0, 10, 20)
    # Below the log start it is not needed any more.
    assert plan(*segments, remote_end=0, start=20, ms=15).base_offsets == (0, 10)


def test_compacted_topic_is_not_deleted_by_time_or_size() -> None:
    assert plan(seg(0, age=99), seg(10, age=99), policy="compact", ms=15, size=0).is_empty


@pytest.mark.parametrize("limits", [{"ms": 15}, {"size": 0}, {"start": 25}])
def test_nothing_above_the_high_watermark_is_deleted(limits: dict[str, int]) -> None:
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
def test_plan_is_a_replicated_prefix_and_respects_both_limits(
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
