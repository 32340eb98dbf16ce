"""docs/faults.md names tests that exist, and has every row."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| \d", line)]


def test_named_tests_exist() -> None:
    named = re.findall(r"`((?:wire|unit|faults|fuzz)/[\w/.]*)(?:::(\w+))?(\.\.\.)?`", PAGE)
    assert len(named) > 15
    for path, name, is_prefix in named:
        found = TESTS / path
        assert found.exists(), path
        if name:
            end = "" if is_prefix else r"\("
            assert re.search(rf"^def {name}{end}", found.read_text(), re.MULTILINE), name


def test_every_row_is_listed() -> None:
    covered: set[int] = set()
    for line in ROWS:
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", line.split("|")[1]):
            covered |= set(range(int(first), int(last or first) + 1))
    assert set(range(1, 45)) <= covered
