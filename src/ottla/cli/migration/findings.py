"""What a check of a migration found, and whether it stops the migration."""

import enum
from collections.abc import Iterable
from typing import Final

import msgspec


class State(enum.StrEnum):
    """The result of one check."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    DIFFERENT = "different"
    WARNING = "warning"
    PROBLEM = "problem"


class Area(enum.StrEnum):
    """What was checked."""

    SETTING = "setting"
    DIRECTORY = "directory"
    CLUSTER = "cluster"
    TOPIC = "topic"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked. ``line`` is that of the properties file, 0 if there is none."""

    area: Area
    subject: str
    state: State
    detail: str = ""
    fix: str = ""
    line: int = 0


# The order in which findings are shown: what stops a migration first.
_ORDER: Final = (State.PROBLEM, State.WARNING, State.DIFFERENT, State.IGNORED, State.SUPPORTED)


def stops(findings: Iterable[Finding]) -> bool:
    """Say whether the migration must not start."""
    return any(each.state is State.PROBLEM for each in findings)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, problems first; otherwise in the order given."""
    return sorted(findings, key=lambda each: _ORDER.index(each.state))
