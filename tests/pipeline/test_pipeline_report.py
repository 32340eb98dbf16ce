"""The history of a pipeline, and the page that shows it."""

import xml.etree.ElementTree as ElementTree

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.terminal.progress import duration
from ottla.spark import history
from ottla.spark.history import Sample, rates, seconds_to_catch_up
from ottla.spark.project import Project, write_project
from ottla.spark.report import page, thinned


def samples(count: int, flow: str = "orders") -> list[Sample]:
    return [
        Sample(1000.0 + each, flow, each, 100 * each, 0.5, 10 * (count - each))
        for each in range(count)
    ]


def plots(text: str) -> list[ElementTree.Element]:
    """Return the plots, parsed: attributes without quotes are not XML, so quote them."""
    found = []
    for part in text.split("<svg")[1:]:
        svg = "<svg" + part.split("</svg>")[0] + "</svg>"
        for name in ("grid", "line", "dot"):
            svg = svg.replace(f"class={name}", f'class="{name}"')
        found.append(ElementTree.fromstring(svg))
    return found


def test_history_is_appended_and_a_cut_line_is_skipped(tmp_path):
    file = tmp_path / "state" / history.NAME
    history.append(file, samples(3))
    history.append(file, [])
    with file.open("ab") as out:
        out.write(b'{"at": 1.0, "fl')
    assert history.read(file) == samples(3)


def test_full_history_drops_its_older_half(tmp_path):
    file = tmp_path / history.NAME
    for each in samples(200):
        history.append(file, [each], bytes_max=2000)
    kept = history.read(file)
    assert kept == samples(200)[-len(kept) :]
    assert 5 < len(kept) < 60
    assert file.stat().st_size < 2300


def test_rates_are_differences_per_second():
    assert rates(samples(3)) == [(1001.0, 100.0), (1002.0, 100.0)]
    restarted = [Sample(1.0, "f", 5, 500), Sample(2.0, "f", 0, 10)]
    assert rates(restarted) == []
    assert rates([Sample(1.0, "f", 5, 500), Sample(1.0, "f", 6, 600)]) == []


@pytest.mark.parametrize(
    ("lag", "before", "seconds", "left"),
    [(0, 5, 1.0, 0.0), (50, 100, 2.0, 2.0), (100, 100, 2.0, None), (5, None, 1.0, None)],
)
def test_time_to_catch_up_follows_the_change_of_the_lag(lag, before, seconds, left):
    assert seconds_to_catch_up(lag, before, seconds) == left


def test_durations_are_short():
    assert [duration(each) for each in (5, 200, 9000)] == ["5 s", "3 min", "2 h"]


def test_page_has_three_plots_for_each_flow():
    text = page("shop <1>", [*samples(20), *samples(20, "clicks")], 2000.0)
    assert "shop &lt;1&gt;" in text
    assert "<h2>clicks</h2>" in text
    drawn = plots(text)
    assert len(drawn) == 6
    for each in drawn:
        (line,) = each.findall("polyline")
        for point in line.attrib["points"].split():
            across, down = map(float, point.split(","))
            assert 0 <= across <= 640
            assert 0 <= down <= 160
    assert "http" not in text, "a report loads nothing"


def test_page_of_one_batch_and_of_none_can_be_written():
    assert "No micro-batch has finished yet" in page("p", [], 0.0)
    text = page("p", [Sample(1.0, "f", 0)], 2.0)
    assert text.count("not measured") == 3
    assert len(plots(page("p", [Sample(1.0, "f", 0, 5, 0.5, 0)], 2.0))) == 2


def test_many_points_are_thinned_without_losing_peaks():
    points = [(float(each), 99.0 if each == 777 else 1.0) for each in range(5000)]
    kept = thinned(points, 100)
    assert len(kept) == 100
    assert (777.0, 99.0) in kept


def test_report_command_writes_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path / "shop", "shop", "localhost:9092")
    done = CliRunner().invoke(app, ["pipeline", "report", "shop"])
    assert done.exit_code == 1
    assert "there is no history yet" in done.stderr
    history.append(Project.find(tmp_path / "shop").state / history.NAME, samples(5))
    done = CliRunner().invoke(app, ["pipeline", "report", "shop", "--to", "out.html"])
    assert done.exit_code == 0, done.output
    assert len(plots((tmp_path / "out.html").read_text())) == 3
