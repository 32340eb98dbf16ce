"""The pictures and the page of `make bench growth`, from figures made up here."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from benchmarks.growth import page, saved
from benchmarks.growth.drawing import draw, short

SVG = "{http://www.w3.org/2000/svg}"


def made_up(ours: float) -> saved.Saved:
    figures: saved.Saved = {}
    for size, factor in ((10, 1.0), (100, ours)):
        saved.add(figures, "partitions", "Ottla", size, {"restart_s": factor, "rate": 5 / factor})
        saved.add(figures, "partitions", "Kafka", size, {"restart_s": 3.0 * factor})
    return figures


def test_picture_has_a_line_and_a_point_for_each_figure() -> None:
    root = ET.fromstring(draw("RSS & more", "partitions", {"Ottla": [(10, 1), (100, 2)]}))
    assert len(root.findall(f"{SVG}circle")) == 2
    texts = [each.text for each in root.findall(f"{SVG}text")]
    assert {"RSS & more", "partitions", "Ottla", "2"} <= set(texts)


def test_larger_values_are_drawn_higher_and_larger_sizes_further_right() -> None:
    root = ET.fromstring(draw("t", "x", {"Ottla": [(10, 1), (100, 50), (1000, 7000)]}))
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


def test_figures_are_stored_and_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    saved.store(made_up(10.0), path)
    found = saved.load(path)
    assert saved.has(found, "partitions", "Kafka", 100)
    assert not saved.has(found, "partitions", "Kafka", 1000)
    assert saved.series(found, "partitions", "Ottla", "restart_s") == [(10, 1.0), (100, 10.0)]
    assert saved.load(tmp_path / "none.json") == {}


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
