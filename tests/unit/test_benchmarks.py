"""The turns of both brokers, what is kept of a run, and docs/benchmarks.md."""

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from benchmarks import figures, page
from benchmarks.__main__ import measured
from benchmarks.areas import AREAS, BY_NAME, Area
from benchmarks.broker.brokers import Missing
from benchmarks.figures import Measured, Run
from benchmarks.report import Figures, Row, at_least, at_most, per_second
from benchmarks.warm import FULL, Bench, Effort, Pair, Side

ROOT = Path(__file__).parents[2]
RUN = Run("2026-11-18", "abcd", "Linux", 0.1)


def row(area: str, what: str, ratio: float = 1.0, *, met: bool = True) -> Row:
    return Row(area, what, "2 per s", "Kafka, 1 per s", ratio, "at least 1", met)


# -- turns -------------------------------------------------------------------------------


class FakeNode:
    def __init__(self, name: str, journal: list[str]) -> None:
        self.name, self.journal = name, journal

    def pause(self) -> None:
        self.journal.append(f"pause {self.name}")

    def resume(self) -> None:
        self.journal.append(f"resume {self.name}")


def pair_of(journal: list[str], effort: Effort = FULL) -> Pair:
    sides = [Side(name, (FakeNode(name, journal),)) for name in ("Ottla", "Kafka")]  # type: ignore[arg-type]
    return Pair(sides, effort)


def test_turns_alternate_their_order_and_pause_the_broker_that_waits() -> None:
    journal: list[str] = []
    for side in pair_of(journal).turns(2):
        journal.append(side.name)
    assert journal == [
        *("pause Kafka", "Ottla", "resume Kafka", "pause Ottla", "Kafka", "resume Ottla"),
        *("pause Ottla", "Kafka", "resume Ottla", "pause Kafka", "Ottla", "resume Kafka"),
    ]


def test_turn_that_fails_resumes_the_broker_that_waits() -> None:
    journal: list[str] = []
    turns = pair_of(journal).turns(1)
    next(turns)
    turns.close()  # type: ignore[attr-defined]
    assert journal == ["pause Kafka", "resume Kafka"]


def test_warm_up_serves_enough_on_both_sides_once_for_each_kind() -> None:
    pair, served = pair_of([], Effort(1, 10.0, 1.0)), []

    def load(side: Side) -> float:
        served.append(side.name)
        return 4.0

    pair.warm_up("small", load)
    assert served == ["Ottla"] * 3 + ["Kafka"] * 3
    pair.warm_up("small", load)
    assert len(served) == 6
    pair.warm_up("large", load)
    assert len(served) == 12


def test_full_effort_warms_up_with_five_gigabytes_and_counts_five_rounds() -> None:
    assert Effort(5, 5e9, 1.0) == FULL


def test_ratio_is_the_median_of_the_rounds_and_ours_over_theirs() -> None:
    both = Figures([10.0, 30.0, 20.0], [10.0, 10.0, 10.0])
    reached = both.row("a", "rate", per_second, at_least(1.5))
    assert (reached.ratio, reached.met, reached.measured) == (2.0, True, "20 per s (1.00 to 3.00)")
    assert not both.row("a", "cost", per_second, at_most(0.7)).met


# -- what is kept ------------------------------------------------------------------------


def measure(area: Area, bench: Bench) -> Iterator[Row]:
    yield row(area.name, "first")
    if area.name == "java":
        raise OSError("the broker is gone")
    if area.name == "tls":
        raise Missing("java is not installed")
    yield row(area.name, "second")


def test_area_that_fails_keeps_its_rows_and_does_not_keep_others_from_being_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    areas = [BY_NAME[name] for name in ("java", "tls", "idle")]
    rows, failed = measured(areas, Bench(FULL, tmp_path), tmp_path, measure)
    assert failed == ["java"]
    assert [each.area for each in rows] == ["idle", "idle"]
    assert [each.row.what for each in figures.load("java", tmp_path)] == ["first"]
    commit = figures.present_commit()
    is_complete = {area.name: figures.is_complete(area.name, commit, tmp_path) for area in areas}
    assert is_complete == {"java": False, "tls": False, "idle": True}
    assert "skipped: tls: java is not installed" in capsys.readouterr().out.splitlines()


def test_run_without_a_folder_keeps_nothing(tmp_path: Path) -> None:
    rows, _ = measured([BY_NAME["idle"]], Bench(FULL, tmp_path), None, measure)
    assert len(rows) == 2
    assert list(tmp_path.iterdir()) == []


def test_area_without_rows_is_skipped_not_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(area: Area, bench: Bench) -> Iterable[Row]:
        return []

    assert measured([BY_NAME["idle"]], Bench(FULL, tmp_path), tmp_path, nothing) == ([], [])
    assert capsys.readouterr().out.startswith("skipped: idle: ")


def test_rows_take_the_place_of_their_namesakes_and_old_ones_go_with_a_complete_run(
    tmp_path: Path,
) -> None:
    for what in ("gone", "stays", "last"):
        figures.keep(row("idle", what), RUN, tmp_path)
    newer = Run("2026-11-19", "ef01", "Linux", 0.25, "another form")
    figures.keep(row("idle", "stays", 3.14159), newer, tmp_path)
    assert figures.load("idle", tmp_path) == [
        Measured(row("idle", "gone"), RUN),
        Measured(row("idle", "stays", 3.142), newer),
        Measured(row("idle", "last"), RUN),
    ]
    figures.complete("idle", [row("idle", "stays")], newer, tmp_path)
    assert figures.load("idle", tmp_path) == [Measured(row("idle", "stays"), newer)]
    assert figures.is_complete("idle", "ef01", tmp_path)
    assert not figures.is_complete("idle", "abcd", tmp_path)


# -- the page ----------------------------------------------------------------------------


def test_page_is_the_one_that_the_recorded_rows_give(tmp_path: Path) -> None:
    page.write(tmp_path / "page.md")
    assert page.PAGE.read_text() == (tmp_path / "page.md").read_text(), "make bench PAGE=1"


def headline_line(number: int, rows: page.Rows) -> str:
    return next(line for line in page.render(rows).splitlines() if line.startswith(f"| {number}. "))


def test_page_starts_with_five_numbers_and_says_what_is_worse_than_kafka() -> None:
    assert len(page.HEADLINES) == 5
    rate, cost = page.HEADLINES[1], page.HEADLINES[2]
    rows = {
        rate.area: [Measured(row(rate.area, rate.what, 0.92), RUN)],
        cost.area: [Measured(row(cost.area, cost.what, 1.4), RUN)],
    }
    assert "slower than Kafka, 0.92 of its rate" in headline_line(2, rows)
    assert "more than Kafka, 1.40 of it" in headline_line(3, rows)
    assert "not measured yet" in headline_line(1, rows)


def test_rows_of_an_earlier_form_are_no_headlines() -> None:
    first = page.HEADLINES[0]
    earlier = Run("2026-11-17", "", "Linux", None, "cold")
    rows = {first.area: [Measured(row(first.area, first.what, 2.8), earlier)]}
    assert "not measured yet" in headline_line(1, rows)
    assert "Measured 2026-11-17, Linux, cold." in page.render(rows)


def test_page_shows_the_load_of_the_machine_and_missed_targets() -> None:
    text = page.render({"idle": [Measured(row("idle", "at rest", met=False), RUN)]})
    assert "Measured 2026-11-18, Linux, commit abcd, load average 0.1 at the start." in text
    assert "| at rest | 2 per s | Kafka, 1 per s | 1.00 | at least 1 | **no** |" in text
    assert "0 of 1 rows meet their targets" in text


def test_every_headline_is_in_an_area() -> None:
    assert {headline.area for headline in page.HEADLINES} <= set(BY_NAME)


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_area_has_a_module_that_takes_the_brokers_if_it_compares_rates(area: Area) -> None:
    run = importlib.import_module(f"benchmarks.{area.name}").run
    parameters = inspect.signature(run).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty]
    assert required == (["bench"] if area.is_compared else [])


def test_ledger_measures_every_area_once_and_within_an_hour() -> None:
    proofs = tomllib.loads((ROOT / "evidence" / "proofs.toml").read_text())["proof"]
    counted: list[str] = []
    for proof in proofs:
        match = re.fullmatch(r'make bench AREA="(.*)"', proof["command"])
        if match:
            names = match[1].split()
            minutes = sum(BY_NAME[name].minutes for name in names)
            assert minutes <= proof["minutes"] < 60, proof["name"]
            counted += names
    assert sorted(counted) == sorted(area.name for area in AREAS)
