"""Numbers with their nouns."""

import re
from pathlib import Path

import pytest

from ottla.operations.counting import counted, plural, were

SOURCES = sorted((Path(__file__).parents[2] / "src/ottla/cli").rglob("*.py"))
# A number in braces and the plural of a noun after it: 1 records.
FIXED_PLURAL = re.compile(
    r"\{[^{}]*\} (records|topics|partitions|nodes|brokers|segments|tables|problems|replicas|groups"
    r"|members|users|rows|files)\b"
)
# Limits, and parts of a whole, which are many.
MANY = ("_MAX", " of {", "expected", "records/s", "as many brokers")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1234, "1,234 records")],
)
def test_noun_has_the_number_of_its_count(count: int, text: str) -> None:
    assert plural(count, "record") == text


def test_verb_has_the_number_of_its_count() -> None:
    assert counted(1, "replica") == "1 replica is" and counted(2, "replica") == "2 replicas are"
    assert were(1, "record") == "1 record was" and were(0, "record") == "0 records were"


def test_no_message_has_a_fixed_plural() -> None:
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found = FIXED_PLURAL.search(line)
            is_many = any(word in line for word in MANY)
            assert found is None or is_many, f"{path}:{number}: use plural(): {line.strip()}"
            assert "'s'[" not in line and '"s"[' not in line, f"{path}:{number}: use plural()"
