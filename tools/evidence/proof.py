"""Proofs and their runs, and their TOML files."""

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DECLARATIONS = Path("evidence/proofs.toml")
RUNS = Path("evidence/runs")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Proof:
    """A command that proves a promise, and what its result depends on."""

    name: str
    promise: str
    command: str
    paths: tuple[str, ...]
    """Files and folders, relative to the root; a change of one makes the last run stale."""
    minutes: float
    """How long it takes on two quiet cores."""
    required: bool = False
    """A release needs it."""
    value: int = 1
    """Among stale proofs, those of higher value per minute run first."""
    figures: tuple[str, ...] = ()
    """Patterns with named groups; what their last match in the output holds is recorded."""


@dataclass(frozen=True, slots=True)
class Run:
    """The last run of a proof that came to its end."""

    commit: str
    date: str
    """When it began, UTC, as ISO 8601."""
    seconds: int
    load: float
    """The load average of one minute before it began."""
    result: str
    counts: dict[str, int] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    ending: tuple[str, ...] = ()
    """The last lines of its output, unless it passed."""


class LedgerFault(Exception):
    """A file of the ledger cannot be used; the text names it and says why."""


def load_proofs(root: Path) -> list[Proof]:
    """Return the declared proofs. Raises LedgerFault for a row that is not one."""
    path = root / DECLARATIONS
    proofs = [_proof(path, row) for row in _read(path).get("proof", [])]
    names = [proof.name for proof in proofs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise LedgerFault(f"{path}: declared twice: {', '.join(repeated)}")
    return proofs


def load_run(root: Path, name: str) -> Run | None:
    """Return the last run of a proof, or None. Raises LedgerFault for a damaged file."""
    path = root / RUNS / f"{name}.toml"
    if not path.exists():
        return None
    row = _read(path)
    try:
        return Run(**(row | {"ending": tuple(row.get("ending", ()))}))
    except TypeError as error:
        raise LedgerFault(f"{path}: {error}") from error


def save_run(root: Path, name: str, run: Run) -> None:
    """Write the last run of a proof, all of it or nothing."""
    path = root / RUNS / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(render_run(run))
    unfinished.replace(path)


def render_run(run: Run) -> str:
    """Return a run as TOML."""
    lines = [
        f"commit = {_text(run.commit)}",
        f"date = {_text(run.date)}",
        f"seconds = {run.seconds}",
        f"load = {run.load:.2f}",
        f"result = {_text(run.result)}",
    ]
    if run.ending:
        lines += ["ending = [", *(f"    {_text(line)}," for line in run.ending), "]"]
    if run.counts:
        lines += ["", "[counts]", *(f"{key} = {number}" for key, number in run.counts.items())]
    if run.figures:
        lines += ["", "[figures]"]
        lines += [f"{key} = {_text(value)}" for key, value in run.figures.items()]
    return "\n".join(lines) + "\n"


def _proof(path: Path, row: dict[str, Any]) -> Proof:
    lists = {key: tuple(row[key]) for key in ("paths", "figures") if key in row}
    try:
        return Proof(**(row | lists))
    except TypeError as error:
        raise LedgerFault(f"{path}: proof {row.get('name', '?')}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LedgerFault(f"{path}: {error}") from error


def _text(text: str) -> str:
    """Return a basic string of TOML; JSON escapes what TOML requires, except DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
