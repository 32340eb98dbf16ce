"""What the steps of a release check have found. Pure, apart from printing progress."""

import enum
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

STARTED = time.monotonic()


class Outcome(enum.Enum):
    """The outcome of a step."""

    OK = "ok"
    FAILED = "FAILED"
    UNCHECKED = "not checked"


class Problem(Exception):
    """The release cannot be made; the text says why, and what to do."""


class Unchecked(Exception):
    """A step could not be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one step."""

    step: str
    outcome: Outcome
    detail: str = ""


def say(text: str) -> None:
    """Print one line of progress with the seconds since the start."""
    sys.stderr.write(f"[{time.monotonic() - STARTED:4.0f} s] {text}\n")
    sys.stderr.flush()


@dataclass(slots=True)
class Report:
    """The findings so far."""

    findings: list[Finding] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Run one step; what it raises becomes its finding. Yields a function for its detail."""
        say(name)
        details: list[str] = []
        try:
            yield details.append
        except Unchecked as reason:
            finding = Finding(name, Outcome.UNCHECKED, str(reason))
        except Problem as problem:
            finding = Finding(name, Outcome.FAILED, str(problem))
        else:
            finding = Finding(name, Outcome.OK, "; ".join(details))
        self.findings.append(finding)
        say(f"{name}: {finding.outcome.value}")

    def has(self, outcome: Outcome) -> bool:
        """Say whether a step had this outcome."""
        return any(finding.outcome is outcome for finding in self.findings)


def render(findings: list[Finding]) -> str:
    """Return the table of all steps, and the conclusion."""
    width = max((len(finding.step) for finding in findings), default=0)
    lines = []
    for finding in findings:
        first, *rest = finding.detail.splitlines() or [""]
        lines.append(f"{finding.outcome.value:12} {finding.step:{width}}  {first}".rstrip())
        lines += [" " * (width + 15) + line for line in rest]
    failed = sum(finding.outcome is Outcome.FAILED for finding in findings)
    unchecked = sum(finding.outcome is Outcome.UNCHECKED for finding in findings)
    if failed:
        conclusion = f"NOT ready: {failed} of {len(findings)} steps failed"
    elif not findings:
        conclusion = "NOT ready: nothing was checked"
    else:
        conclusion = "ready to be released"
    if unchecked:
        conclusion += f"; {unchecked} not checked, see above"
    return "\n".join([*lines, conclusion])
