"""Rates and time to catch up of ``ottla group lag --watch``."""

from ottla.cli.commands.group_lag import lag_rows

HERE = ("g", "t", 0)


def row(
    now: tuple[int, int], before: tuple[int, int] | None, seconds: float = 2
) -> dict[str, object]:
    (found,) = lag_rows({HERE: now}, {} if before is None else {HERE: before}, seconds)
    return {key: found[key] for key in ("lag", "read/s", "written/s", "eta")}


def test_first_measurement_has_no_rates() -> None:
    assert row((4, 10), None) == {"lag": 6, "read/s": None, "written/s": None, "eta": None}


def test_group_that_reads_faster_than_is_written_catches_up() -> None:
    found = row((140, 200), (100, 190))
    assert found == {"lag": 60, "read/s": 20, "written/s": 5, "eta": 4}


def test_group_that_falls_behind_never_catches_up() -> None:
    assert row((110, 220), (100, 200))["eta"] is None


def test_group_at_the_end_has_caught_up() -> None:
    assert row((200, 200), (200, 200))["eta"] == 0


def test_largest_lag_of_a_group_comes_first() -> None:
    found = lag_rows({("b", "t", 0): (0, 1), ("a", "t", 0): (0, 1), ("a", "t", 1): (0, 9)}, {}, 0)
    assert [(each["group"], each["partition"]) for each in found] == [("a", 1), ("a", 0), ("b", 0)]
