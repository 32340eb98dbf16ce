"""The plan, the pictures and the page of `make bench growth`, from figures made up here."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from benchmarks.growth import page, plan, quietness, saved
from benchmarks.growth.drawing import draw, short

SVG = "{http://www.w3.org/2000/svg}"


FILES_MAX = 20_000


def made_up(ours: float) -> saved.Saved:
    figures: saved.Saved = {}
    for size, factor in ((10, 1.0), (100, ours)):
        mine = {"restart_s": factor, "rate": 5 / factor}
        saved.add(figures, "partitions", "Ottla", size, saved.Round(mine))
        saved.add(figures, "partitions", "Kafka", size, saved.Round({"restart_s": 3.0 * factor}))
    return figures


def test_picture_has_a_line_and_a_point_for_each_figure() -> None:
    root = ET.fromstring(
        draw("RSS & more", "partitions", {"Ottla": [(10, 1, 1, 1), (100, 1, 2, 3)]})
    )
    assert len(root.findall(f"{SVG}circle")) == 2
    texts = [each.text for each in root.findall(f"{SVG}text")]
    assert {"RSS & more", "partitions", "Ottla", "2"} <= set(texts)


def test_larger_values_are_drawn_higher_and_larger_sizes_further_right() -> None:
    points = [(10, 1, 1, 1), (100, 40, 50, 60), (1000, 6000, 7000, 8000)]
    root = ET.fromstring(draw("t", "x", {"Ottla": points}))
    places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.findall(f"{SVG}circle")]
    assert places == sorted(places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (12.0, "12"), (1500.0, "1.5k"), (2e6, "2M")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(("ours", "is_listed"), [(10.0, False), (200.0, True)])
def test_page_lists_what_grows_faster_than_its_input(ours: float, is_listed: bool) -> None:
    found = page.steep(made_up(ours))
    assert ([line for line in found if "restart until all are led" in line] != []) is is_listed


def test_rates_that_fall_are_not_listed_as_costs_that_grow() -> None:
    assert not [line for line in page.steep(made_up(200.0)) if "per second" in line]


def test_figures_are_stored_and_loaded_with_all_rounds(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    figures = made_up(10.0)
    second = saved.Round({"restart_s": 14.0}, ["restart_s"], 3.5, 0.25, 1.0)
    saved.add(figures, "partitions", "Ottla", 100, second)
    saved.store(figures, path)
    found = saved.load(path)
    assert found == figures
    assert saved.rounds(found, "partitions", "Ottla", 100)[1] == second
    assert saved.load(tmp_path / "none.json") == {}


def test_rounds_of_given_dimensions_and_brokers_are_forgotten() -> None:
    figures = made_up(10.0)
    left = saved.without(figures, ["partitions"], ["Kafka"])
    assert saved.rounds(left, "partitions", "Kafka", 10) == []
    assert len(saved.rounds(left, "partitions", "Ottla", 10)) == 1
    assert saved.without(figures, [], ["Kafka"]) == figures
    assert saved.without(figures, ["groups"], ["Kafka"]) == figures


def test_figure_is_the_median_of_its_rounds_with_their_spread() -> None:
    figures: saved.Saved = {}
    for value in (5.0, 1.0, 2.0):
        saved.add(figures, "groups", "Kafka", 7, saved.Round({"list_ms": value}))
    assert saved.values(figures, "groups", "Kafka", "list_ms") == {
        7: saved.Value(2.0, 1.0, 5.0, is_limit=False)
    }
    assert page.cell(saved.Value(2.0, 1.0, 5.0, is_limit=False)) == "2 (1 to 5)"
    assert page.cell(saved.Value(2.0, 2.0, 2.0, is_limit=False)) == "2"
    assert page.cell(saved.Value(90.0, 90.0, 90.0, is_limit=True)) == "> 90"


def planned(figures: saved.Saved, count: int, files_max: int = FILES_MAX) -> list[plan.Series]:
    sizes = {"partitions": (10, 100, 10_000, 20_000), "groups": (10,)}
    return list(plan.missing(figures, sizes, count, files_max))


def test_plan_measures_every_dimension_before_the_next_round() -> None:
    found = [(each.round, each.dimension, each.broker) for each in planned({}, 2)]
    one_round = [(d, b) for d in ("partitions", "groups") for b in plan.BROKERS]
    assert found == [(number, *each) for number in (1, 2) for each in one_round]


def test_plan_leaves_out_rounds_that_are_saved() -> None:
    figures = made_up(10.0)
    first, *_ = [each for each in planned(figures, 2) if each.dimension == "partitions"]
    assert first == plan.Series(1, "partitions", "Ottla", (10_000, 20_000))
    second = [each for each in planned(figures, 2) if each.round == 2]
    assert second[0] == plan.Series(2, "partitions", "Ottla", (10, 100, 10_000, 20_000))


def test_plan_measures_large_sizes_of_kafka_once() -> None:
    of_kafka = [each for each in planned({}, 3, 1 << 20) if each.broker == "Kafka"]
    assert [each.sizes for each in of_kafka if each.dimension == "partitions"] == [
        (10, 100, 10_000, 20_000),
        (10, 100),
        (10, 100),
    ]


def test_plan_leaves_out_sizes_of_kafka_beyond_the_limit_of_open_files() -> None:
    wanted = {each.broker: each.sizes for each in planned({}, 1) if each.dimension == "partitions"}
    assert wanted == {"Ottla": (10, 100, 10_000, 20_000), "Kafka": (10, 100, 10_000)}


def test_estimate_uses_the_seconds_of_earlier_rounds() -> None:
    known: saved.Saved = {}
    newer: saved.Saved = {}
    for seconds in (10.0, 14.0, 60.0):
        saved.add(known, "groups", "Ottla", 10, saved.Round({}, seconds=seconds))
    series = plan.Series(1, "groups", "Ottla", (10, 100))
    expected = 14.0 + plan.SECONDS_UNKNOWN["Ottla"] + plan.SECONDS_OF_STOP["Ottla"]
    assert plan.seconds_expected([newer, known], [series]) == expected
    saved.add(newer, "groups", "Ottla", 10, saved.Round({}, seconds=4.0))
    assert plan.seconds_expected([newer, known], [series]) == expected - 10.0


def test_page_states_rounds_load_and_other_work() -> None:
    figures = made_up(10.0)
    saved.add(figures, "partitions", "Ottla", 10, saved.Round({}, [], 1.0, 0.5, 2.5))
    text = page.conditions(figures)
    assert "Ottla: 1 point in 2 rounds, 1 point in 1 round." in text
    assert "Kafka: 2 points in 1 round." in text
    assert "median 0.5, at most 0.5" in text and "median 2.5, at most 2.5" in text
    assert "For 4 of 5 measurements it was not recorded" in text


@pytest.mark.parametrize(("others", "is_quiet"), [(3.0, True), (80.0, False)])
def test_page_says_that_the_machine_was_not_quiet(others: float, is_quiet: bool) -> None:
    figures: saved.Saved = {}
    saved.add(figures, "groups", "Ottla", 10, saved.Round({}, [], 1.0, 0.5, others))
    assert ("The machine was not quiet" not in page.conditions(figures)) is is_quiet


def test_other_work_is_that_of_the_machine_without_ours() -> None:
    assert quietness.machine_ticks("cpu  100 10 50 900 30 7 8 4 0 0\ncpu0 1 2") == 164
    stat = "42 (a b) c) S 7 0 0 0 0 0 0 0 0 0 11 12 13 14 0"
    assert quietness.process_ticks(stat, 7) == 50
    assert quietness.process_ticks(stat, 8) == 0


def test_page_has_the_figures_of_both_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PICTURES", tmp_path / "growth")
    monkeypatch.setattr(page, "NOTES", tmp_path / "notes.md")
    page.write(made_up(10.0), "a machine", tmp_path / "growth.md")
    text = (tmp_path / "growth.md").read_text()
    assert "| restart until all are led, s, Ottla | 1 | 10 |" in text
    assert "| restart until all are led, s, Kafka | 3 | 30 |" in text
    assert "growth/partitions-restart_s.svg" in text
    assert (tmp_path / "growth" / "partitions-restart_s.svg").exists()
    assert "| rounds, Kafka | 1 | 1 |" in text
