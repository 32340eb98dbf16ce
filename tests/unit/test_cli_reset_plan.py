"""Where a group shall go on reading: the plan, and what is read from files and options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.reset_plan import (
    BadReset,
    Bounds,
    FromFile,
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    parse_duration,
    parse_file,
    parse_time,
    parse_topics,
    plan_reset,
    written,
)
from ottla.protocol.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
HAS = {B: Bounds(5, 20, at_time=8), A: Bounds(0, 10)}
IS = {A: 4}


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (ToEarliest(), [0, 5]),
        (ToLatest(), [10, 20]),
        (ToCurrent(), [4]),
        (ToOffset(7), [7, 7]),
        (ToTime(1), [10, 8]),
        (ShiftBy(3), [7, 8]),
        (ShiftBy(-3), [1, 5]),
        (FromFile({B: 6}), [6]),
    ],
)
def test_each_target_has_its_offset(target: Target, offsets: list[int]) -> None:
    assert [each.new for each in plan_reset(target, HAS, IS)] == offsets


def test_a_plan_says_what_it_could_not_do() -> None:
    high = plan_reset(ToOffset(15), HAS, IS)
    assert high == [
        PlannedOffset(A, 4, 10, "15 is out of range: 0 to 10"),
        PlannedOffset(B, None, 15),
    ]
    low = plan_reset(ToOffset(2), HAS, IS)
    assert [each.note for each in low] == ["", "2 is out of range: 5 to 20"]
    late = plan_reset(ToTime(9), HAS, IS)
    assert [each.note for each in late] == ["no record is that recent: using the end", ""]
    shifted = plan_reset(ShiftBy(1), HAS, IS)
    assert [each.note for each in shifted] == [
        "",
        "nothing is committed: counting from the first record",
    ]


@given(
    st.sampled_from([ToEarliest(), ToLatest(), ToCurrent(), ToOffset(9), ShiftBy(-4), ShiftBy(6)]),
    st.integers(0, 8),
    st.integers(0, 8),
    st.none() | st.integers(0, 30),
)
def test_no_plan_leaves_what_a_partition_has(
    target: Target, first: int, more: int, current: int | None
) -> None:
    bounds = {A: Bounds(first, first + more)}
    for each in plan_reset(target, bounds, {} if current is None else {A: current}):
        assert first <= each.new <= first + more


def test_topics_are_read_with_their_partitions() -> None:
    assert parse_topics(["a", "b:2,0", "b:1", "c:1", "c"]) == {"a": None, "b": (0, 1, 2), "c": None}
    for wrong in ("a:", ":1", "a:x", "a:1,", "a:-1", "a:²"):
        with pytest.raises(BadReset):
            parse_topics([wrong])


def test_times_and_durations() -> None:
    assert parse_time("1970-01-02T00:00:00.250") == 86_400_250
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    assert parse_duration("P1DT2H") == 93_600_000
    for wrong in ("yesterday", "1960-01-01T00:00:00", ""):
        with pytest.raises(BadReset):
            parse_time(wrong)
    with pytest.raises(BadReset):
        parse_duration("2h")


def test_a_plan_is_written_and_read_again() -> None:
    planned = plan_reset(ToLatest(), HAS, IS)
    assert parse_file(written(planned)) == {A: 10, B: 20}
    assert parse_file("a, 0, 7\n\n b,3,1 \n") == {A: 7, B: 1}
    for wrong in ("", "\n", "a,0", "a,0,-1", ",0,1", "a,0,1,2"):
        with pytest.raises(BadReset):
            parse_file(wrong)
