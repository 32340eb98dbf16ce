"""The list of deliberate differences: which are allowed, and why."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.differential.compare import Difference

LIST = Path(__file__).with_name("deliberate.toml")
FIELDS = {"request", "situation", "kafka", "ottla", "reason", "cases", "paths"}
OPTIONAL = {"kafka_value", "ottla_value", "rights"}
ALL_RIGHTS, NO_RIGHTS = "all", "none"


@dataclass(frozen=True, slots=True)
class Deliberate:
    """One row. ``cases``, ``paths`` and the two values are patterns: ``*`` stands for any text.

    ``request``, ``situation``, ``kafka``, ``ottla`` and ``reason`` are for the reader of
    docs/differences.md.
    """

    request: str
    situation: str
    kafka: str
    ottla: str
    reason: str
    cases: tuple[str, ...]
    paths: tuple[str, ...]
    kafka_value: str = "*"
    ottla_value: str = "*"
    rights: str = ALL_RIGHTS
    """The rights of the user in whose runs the row must be of use (`tests.differential.rights`).

    A row for all rights applies to every user, one for no rights to every other user."""

    def covers(self, case: str, difference: Difference) -> bool:
        """Say whether this row allows a difference."""
        return (
            any(matches(pattern, case) for pattern in self.cases)
            and any(matches(pattern, difference.path) for pattern in self.paths)
            and matches(self.kafka_value, difference.kafka)
            and matches(self.ottla_value, difference.ottla)
        )

    def applies_to(self, user: str) -> bool:
        """Say whether the row is for a user with these rights."""
        if self.rights == NO_RIGHTS:
            return user != ALL_RIGHTS
        return self.rights in (ALL_RIGHTS, user)

    def family(self) -> set[str]:
        """Return the families the row speaks of."""
        return {pattern.partition("/")[0] for pattern in self.cases}


def matches(pattern: str, name: str) -> bool:
    """Say whether a whole name fits a pattern: ``*`` is any text, a ``!`` before it means not."""
    if pattern.startswith("!"):
        return not matches(pattern[1:], name)
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None


def load(path: Path = LIST) -> list[Deliberate]:
    """Read the list; a row with a missing, unknown or empty field is an error."""
    rows = []
    for row in tomllib.loads(path.read_text()).get("difference", []):
        wrong = (set(row) - OPTIONAL) ^ FIELDS
        if wrong or not all(row.values()):
            raise ValueError(f"{row}: wrong or empty fields: {sorted(wrong)}")
        lists = {"cases": tuple(row["cases"]), "paths": tuple(row["paths"])}
        rows.append(Deliberate(**{**row, **lists}))
    return rows
