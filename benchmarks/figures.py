"""The rows measured so far: a file for each area, so that a run can be interrupted and resumed.

    docs/benchmarks/AREA.json   {"complete": "the commit of the last run that measured all rows",
                                 "rows": [{"what": ..., "ratio": ..., "date": ..., "load": ...}]}

Rows are written as soon as they are measured. Rows of the quick form are never written.
"""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Row

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "benchmarks"
SOURCES = ("src", "benchmarks")


@dataclass(frozen=True, slots=True)
class Run:
    """When and on what rows were measured. ``form`` is set if it is not the present one.

    ``load`` is the load average of the minute before the area began; None if it is not known.
    """

    date: str
    commit: str
    machine: str
    load: float | None = None
    form: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row, and the run that measured it."""

    row: Row
    run: Run


def present_run() -> Run:
    """Return the run that begins now."""
    return Run(today(), present_commit(), machine(), round(os.getloadavg()[0], 2))


def today() -> str:
    """Return the date, UTC."""
    return datetime.now(UTC).date().isoformat()


def machine() -> str:
    """Return a few words about the machine."""
    return f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def present_commit() -> str:
    """Return the commit of the tree, with a plus sign if what is measured differs from it."""
    commit = _git("rev-parse", "--short=8", "HEAD").strip()
    return commit + "+" * bool(_git("status", "--porcelain", "--", *SOURCES).strip())


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def load(area: str, folder: Path = FOLDER) -> list[Measured]:
    """Return the rows of an area; none if it was not measured."""
    return [_read(area, fields) for fields in _file(area, folder)["rows"]]


def _file(area: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{area}.json"
    content: dict[str, Any] = {"complete": "", "rows": []}
    return json.loads(path.read_text()) if path.exists() else content


def _read(area: str, fields: dict[str, Any]) -> Measured:
    run = {key: fields.pop(key) for key in ("date", "commit", "machine", "load", "form")}
    return Measured(Row(area=area, **fields), Run(**run))


def store(
    area: str, measured: Sequence[Measured], complete: str | None = None, folder: Path = FOLDER
) -> None:
    """Write the rows of an area, all of them or nothing. ``complete``: all are of this commit."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [asdict(each.row) | asdict(each.run) for each in measured]
    for row in rows:
        del row["area"]
        row["ratio"] = float(f"{row['ratio']:.4g}")
    if complete is None:
        complete = _file(area, folder)["complete"]
    unfinished = folder / f"{area}.unfinished"
    content = {"complete": complete, "rows": rows}
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    unfinished.replace(folder / f"{area}.json")


def keep(row: Row, run: Run, folder: Path = FOLDER) -> None:
    """Store a row: in place of its namesake, or as the last one of its area."""
    measured = load(row.area, folder)
    names = [each.row.what for each in measured]
    at = names.index(row.what) if row.what in names else len(names)
    measured[at : at + 1] = [Measured(row, run)]
    store(row.area, measured, folder=folder)


def complete(area: str, rows: Sequence[Row], run: Run, folder: Path = FOLDER) -> None:
    """Note that a run has measured all of an area; rows that it did not measure are removed."""
    store(area, [Measured(row, run) for row in rows], run.commit, folder)


def is_complete(area: str, commit: str, folder: Path = FOLDER) -> bool:
    """Return whether a run at this commit has measured all of an area."""
    return bool(_file(area, folder)["complete"] == commit)
