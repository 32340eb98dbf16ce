"""docs/differences.md, written from the list of deliberate differences."""

from pathlib import Path

from tests.differential.deliberate import Deliberate

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
INTRODUCTION = """# Deliberate differences from Apache Kafka

Written by `make docs` from `tests/differential/deliberate.toml`. `make differential` sends the same
requests to Apache Kafka 4.2 and to an Ottla node and compares the answers field by field; these are
the only differences it accepts. A row that no longer matches anything fails the run, and so does
any other difference. Not compared: the wording of error messages, ids that a broker generates,
times, and the order of lists that Kafka keeps in hash tables.

| Request | Case | Kafka | Ottla | Reason |
| --- | --- | --- | --- | --- |
"""


def render(rows: list[Deliberate]) -> str:
    """Return the page."""
    lines = [
        f"| {row.request} | {row.situation} | {row.kafka} | {row.ottla} | {row.reason} |"
        for row in rows
    ]
    return INTRODUCTION + "\n".join(lines) + "\n"
