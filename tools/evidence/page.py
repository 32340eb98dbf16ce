"""The table of `make evidence`, and docs/evidence.md. Pure."""

from collections.abc import Sequence

from tools.evidence.proof import Run
from tools.evidence.status import State, Status

PAGE = "docs/evidence.md"
_INTRODUCTION = """\
# Evidence

Each promise, the command that proves it, and its last run. `make evidence` compares the runs with
the current commit, and shows which ones no longer count because a file that they depend on has
changed; `make evidence RUN=stale BUDGET=3600` runs those again. This page is written from the files
in `evidence/`, and a test compares them.

| Proof | Promise | Command | Result | Commit | Date (UTC) | Time | Load | Counts and figures |
|---|---|---|---|---|---|---|---|---|
"""


def render_table(statuses: Sequence[Status], width: int = 80) -> str:
    """Return one line per proof, the reason below it where there is one, and a line of totals."""
    name_width = max((len(status.proof.name) for status in statuses), default=0)
    lines = []
    for status in statuses:
        mark = "*" if status.proof.required else " "
        at = _when(status.run) if status.run else f"about {status.minutes:.0f} min"
        lines.append(f"{mark} {status.proof.name:<{name_width}}  {status.state.value:<9}  {at}")
        if status.reason:
            lines.append(f"    {status.reason}"[:width])
    totals = ", ".join(
        f"{number} {state.value}"
        for state in State
        if (number := sum(status.state is state for status in statuses))
    )
    return "\n".join([*lines, "", f"{totals} (* required for a release)"])


def render_page(statuses: Sequence[Status]) -> str:
    """Return docs/evidence.md. It does not depend on the current commit."""
    return _INTRODUCTION + "".join(_row(status) for status in statuses)


def _row(status: Status) -> str:
    proof, run = status.proof, status.run
    name = f"**{proof.name}**" if proof.required else proof.name
    cells = [name, proof.promise, f"`{proof.command}`"]
    if run is None:
        cells += ["never run", "", "", f"about {proof.minutes:g} min", "", ""]
    else:
        details = {key: str(number) for key, number in run.counts.items()} | run.figures
        cells += [run.result, run.commit[:8], run.date[:16].replace("T", " "), _time(run)]
        cells += [f"{run.load:.1f}", ", ".join(f"{key} {text}" for key, text in details.items())]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _when(run: Run) -> str:
    passed = f", {run.counts['passed']} tests" if run.counts.get("passed") else ""
    return f"{run.commit[:8]}  {run.date[:10]}  {_time(run)}{passed}"


def _time(run: Run) -> str:
    return f"{run.seconds} s" if run.seconds < 120 else f"{run.seconds / 60:.0f} min"
