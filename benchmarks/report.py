"""The results of a benchmark: one row per claim, a ratio inside one run, and whether it is met."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

REPEATS = 7
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One claim. ``ratio`` is compared with ``target``; times are for orientation."""

    area: str
    what: str
    measured: str
    reference: str
    ratio: float
    target: str
    met: bool


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median wall time of one call, after one call to warm up."""
    work()
    taken = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        taken.append(perf_counter() - began)
    return statistics.median(taken)


def interleaved(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int = REPEATS
) -> tuple[float, float, list[float]]:
    """Time two functions in alternation, so that noise affects both.

    Returns:
        Our median, their median, and the ratio theirs/ours of every round.
    """
    ours(), theirs()
    mine: list[float] = []
    other: list[float] = []
    for _ in range(repeats):
        for work, taken in ((ours, mine), (theirs, other)):
            began = perf_counter()
            work()
            taken.append(perf_counter() - began)
    ratios = [t / m for m, t in zip(mine, other, strict=True)]
    return statistics.median(mine), statistics.median(other), ratios


def spread(ratios: Sequence[float]) -> str:
    """Return the range of a figure over the rounds of one run, for the table."""
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


HEAD = (
    "| Area | What | Measured | Reference | Ratio | Target | Met |",
    "|---|---|---|---|---:|---|:--:|",
)


def line_of(row: Row) -> str:
    """Return a row as a line of a Markdown table."""
    return (
        f"| {row.area} | {row.what} | {row.measured} | {row.reference} | {row.ratio:.2f} "
        f"| {row.target} | {'yes' if row.met else '**no**'} |"
    )


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    return "\n".join((*HEAD, *map(line_of, rows))) + "\n"


def write_rows(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Put rows into the table of the page: in place of their namesakes, or after their area."""
    lines = page.read_text().splitlines()
    for row in rows:
        same = _starting(lines, f"| {row.area} | {row.what} |")
        if same:
            lines[same[0]] = line_of(row)
        else:
            before = _starting(lines, f"| {row.area} |") or _starting(lines, "|")
            lines.insert(before[-1] + 1, line_of(row))
    page.write_text("\n".join(lines) + "\n")


def _starting(lines: Sequence[str], start: str) -> list[int]:
    return [number for number, line in enumerate(lines) if line.startswith(start)]
