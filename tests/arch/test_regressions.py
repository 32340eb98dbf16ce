"""Every bug of other brokers that is on the list (B1 to B18) has a test of ours with its number."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NUMBERS = range(1, 19)
NAME = re.compile(r"^def test((?:_b\d+)+)_", re.MULTILINE)


def numbered() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for names in NAME.findall(path.read_text()):
            for number in re.findall(r"_b(\d+)", names):
                found.setdefault(int(number), []).append(path.name)
    return found


FOUND = numbered()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_bug_on_the_list_has_a_test(number: int) -> None:
    assert FOUND.get(number), f"no test is named for B{number}"
