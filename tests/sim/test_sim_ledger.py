"""The ledger: one test per rule, so that one does not hide the failure of another."""

import pytest

from simulation.ledger import InvariantBroken, Ledger


def held(*values: bytes) -> Ledger:
    ledger = Ledger()
    ledger.recovered([])
    for offset, value in enumerate(values):
        ledger.attempted(value)
        ledger.appended(offset, value)
    return ledger


@pytest.mark.parametrize("left", [[], [b"a"], [b"a", b"b"], [b"a", b"b", b"c"]])
def test_any_prefix_is_accepted_without_acknowledgements(left: list[bytes]) -> None:
    ledger = held(b"a", b"b", b"c")
    ledger.recovered(left)
    assert ledger.recoveries == 2
    ledger.appended(len(left), b"next")


def test_missing_acknowledged_value_is_reported() -> None:
    ledger = held(b"a", b"b", b"c")
    ledger.received(1, b"b")
    ledger.recovered([b"a", b"b"])
    with pytest.raises(InvariantBroken, match="acknowledged b'b' at offset 1, found None"):
        ledger.recovered([b"a"])


@pytest.mark.parametrize("left", [[b"b"], [b"a", b"c"], [b"a", b"x"], [b"a", b"b", b"c", b"d"]])
def test_content_that_is_not_a_prefix_is_reported(left: list[bytes]) -> None:
    with pytest.raises(InvariantBroken, match="not a prefix"):
        held(b"a", b"b", b"c").recovered(left)


def test_value_interrupted_by_the_crash_may_follow_the_prefix() -> None:
    ledger = held(b"a")
    ledger.attempted(b"b")
    ledger.recovered([b"a", b"b"])
    with pytest.raises(InvariantBroken):
        ledger.recovered([b"a", b"b", b"b"])


def test_offset_is_acknowledged_for_one_value_only() -> None:
    ledger = held(b"a")
    ledger.received(0, b"a")
    ledger.received(0, b"a")
    with pytest.raises(InvariantBroken, match="offset 0 acknowledged"):
        ledger.received(0, b"b")


def test_offsets_are_assigned_in_sequence() -> None:
    with pytest.raises(InvariantBroken, match="expected 1"):
        held(b"a").appended(2, b"b")
