"""The real clock and randomness, and their simulated versions where they share a rule."""

import time

import pytest

from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Random
from ottla.runtime.randomness import SystemRandom, draw_uuid
from simulation.random import SimRandom


def test_the_clock_counts_milliseconds() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time() * 1000) < 5_000
    before = clock.monotonic()
    assert 0 <= clock.monotonic() - before < 5_000


@pytest.mark.parametrize("random", [SystemRandom(), SimRandom(7)], ids=["system", "sim"])
def test_random_numbers_cover_their_range(random: Random) -> None:
    assert {random.below(3) for _ in range(200)} == {0, 1, 2}
    assert random.below(1) == 0
    assert all(0 <= random.below(10**30) < 10**30 for _ in range(20))
    fractions = [random.fraction() for _ in range(500)]
    assert all(0 <= f < 1 for f in fractions)
    assert min(fractions) < 0.2 and max(fractions) > 0.8
    assert [len(random.bytes(n)) for n in (0, 1, 7, 8, 9, 100)] == [0, 1, 7, 8, 9, 100]
    with pytest.raises(ValueError):
        random.below(0)


@pytest.mark.parametrize("random", [SystemRandom(), SimRandom(7)], ids=["system", "sim"])
def test_ids_are_version_4_and_never_start_with_a_dash(random: Random) -> None:
    for _ in range(2000):
        drawn = random.uuid()
        assert len(drawn) == 16
        assert drawn[6] >> 4 == 4 and drawn[8] >> 6 == 2
        assert drawn[0] >> 2 != 62


def test_id_that_would_start_with_a_dash_is_drawn_again() -> None:
    draws = [b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" + bytes(15)]
    assert draw_uuid(lambda _: draws.pop(0))[0] == 1
    assert draws == []


def test_random_streams_of_one_seed_are_reproducible_and_independent() -> None:
    def draws(random: SimRandom) -> list[int]:
        return [random.below(1000) for _ in range(20)]

    assert draws(SimRandom(1, "a")) == draws(SimRandom(1, "a"))
    different = [
        SimRandom(1, "a"), SimRandom(1, "b"), SimRandom(2, "a"), SimRandom(1, "a").stream("c"),
    ]  # fmt: skip
    assert len({tuple(draws(random)) for random in different}) == 4
    assert SimRandom(1).below(1000) == 58, "the same on every machine and for ever"
