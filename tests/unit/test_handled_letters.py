"""Which dead letters were handled: a position and ranges above it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.handled_letters import HandledLetters, TooScattered
from ottla.protocol.types import Offset

# Few offsets, so that ranges meet.
OFFSETS = st.integers(0, 12)


@given(OFFSETS, st.lists(OFFSETS), OFFSETS)
def test_letters_are_those_of_a_set(position: int, added: list[int], start: int) -> None:
    handled = HandledLetters(Offset(position))
    expected = set(range(position))
    for offset in added:
        handled.add(offset)
        expected.add(offset)
    again = HandledLetters(handled.position, handled.metadata)
    for each in (handled, again):
        assert {offset for offset in range(15) if offset in each} == expected
        left = [offset for offset in range(start, 15) if offset not in expected]
        assert each.count_between(start, 15) == len(left)
        assert each.position not in each


@given(OFFSETS, st.lists(OFFSETS), st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted).map(tuple)))
def test_added_ranges_may_overlap(
    position: int, added: list[int], ranges: list[tuple[int, int]]
) -> None:
    handled = HandledLetters(Offset(position))
    for offset in added:
        handled.add(offset)
    handled.add_all(ranges)
    expected = {*range(position), *added}.union(*(range(a, b + 1) for a, b in ranges))
    again = HandledLetters(handled.position, handled.metadata)
    for letters in (handled, again):
        assert {offset for offset in range(15) if offset in letters} == expected
        assert letters.position not in letters


def test_too_many_ranges_are_rejected() -> None:
    handled = HandledLetters(Offset(0))
    for offset in range(1, 4000, 2):
        handled.add(offset)
    with pytest.raises(TooScattered, match="2000 ranges"):
        _ = handled.metadata
