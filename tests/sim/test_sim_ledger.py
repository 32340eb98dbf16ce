"""The ledger: each rule by itself, so that one does not hide the failure of another."""

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
def test_any_prefix_will_do_where_nothing_was_acknowledged(left: list[bytes]) -> None:
    ledger = held(b"a", b"b", b"c")
    ledger.recovered(left)
    assert ledger.recoveries == 2
    ledger.appended(len(left), b"next")


def test_what_was_acknowledged_must_be_there() -> None:
    ledger = held(b"a", b"b", b"c")
    ledger.heard(1, b"b")
    ledger.recovered([b"a", b"b"])
    with pytest.raises(InvariantBroken, match="acknowledged b'b' at offset 1, found None"):
        ledger.recovered([b"a"])


@pytest.mark.parametrize("left", [[b"b"], [b"a", b"c"], [b"a", b"x"], [b"a", b"b", b"c", b"d"]])
def test_what_is_no_prefix_is_noticed(left: list[bytes]) -> None:
    with pytest.raises(InvariantBroken, match="no prefix"):
        held(b"a", b"b", b"c").recovered(left)


def test_the_value_it_died_over_may_be_there_behind_the_rest() -> None:
    ledger = held(b"a")
    ledger.attempted(b"b")
    ledger.recovered([b"a", b"b"])
    with pytest.raises(InvariantBroken):
        ledger.recovered([b"a", b"b", b"b"])


def test_one_place_is_acknowledged_for_one_value() -> None:
    ledger = held(b"a")
    ledger.heard(0, b"a")
    ledger.heard(0, b"a")
    with pytest.raises(InvariantBroken, match="offset 0 acknowledged"):
        ledger.heard(0, b"b")


def test_places_are_given_out_one_by_one() -> None:
    with pytest.raises(InvariantBroken, match="expected 1"):
        held(b"a").appended(2, b"b")
