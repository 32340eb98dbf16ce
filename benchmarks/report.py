"""The results of a benchmark: one row per claim, a ratio inside one run, and whether it is met."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

REPEATS = 7


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


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio of ours to Kafka's should be."""

    text: str
    is_met: Callable[[float], bool]


def at_least(limit: float) -> Target:
    """Return the target of a rate."""
    return Target(f"at least {limit:g}", lambda ratio: ratio >= limit)


def at_most(limit: float) -> Target:
    """Return the target of a cost or a time."""
    return Target(f"at most {limit:g}", lambda ratio: ratio <= limit)


REPORTED = Target("reported", lambda _: True)


@dataclass(slots=True)
class Figures:
    """One figure of both brokers, round by round. A ratio is ours over Kafka's, always."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def add(self, name: str, value: float) -> None:
        """Add the figure of one round of a broker."""
        (self.ours if name == "Ottla" else self.theirs).append(value)

    @property
    def ratios(self) -> list[float]:
        """Return ours over theirs in every round."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    def row(
        self,
        area: str,
        what: str,
        show: Callable[[float], str],
        target: Target = REPORTED,
        details: "Details | None" = None,
    ) -> Row:
        """Return the row of the medians; ``details`` adds figures of the same rounds to them."""
        ratio = statistics.median(self.ratios)
        mine, other = details.shown() if details else ("", "")
        return Row(
            area,
            what,
            f"{show(statistics.median(self.ours))}{mine} ({spread(self.ratios)})",
            f"Kafka, {show(statistics.median(self.theirs))}{other}",
            ratio,
            target.text,
            target.is_met(ratio),
        )


@dataclass(frozen=True, slots=True)
class Details:
    """A second figure of the same rounds, shown beside the first one."""

    figures: Figures
    show: Callable[[float], str]

    def shown(self) -> tuple[str, str]:
        """Return the text of both medians."""
        medians = (statistics.median(self.figures.ours), statistics.median(self.figures.theirs))
        return f", {self.show(medians[0])}", f", {self.show(medians[1])}"


def megabytes_per_second(value: float) -> str:
    """Show bytes per second."""
    return f"{value / 1e6:,.0f} MB/s"


def seconds_per_gb(value: float) -> str:
    """Show CPU seconds per GB."""
    return f"{value:.2f} s/GB"


def milliseconds(value: float) -> str:
    """Show seconds as milliseconds."""
    return f"{value * 1000:,.2f} ms"


def per_second(value: float) -> str:
    """Show a rate."""
    return f"{value:,.0f} per s"


def megabytes(value: float) -> str:
    """Show bytes."""
    return f"{value / 1e6:,.0f} MB"


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


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| Area | What | Measured | Reference | Ratio | Target | Met |",
        "|---|---|---|---|---:|---|:--:|",
        *(f"| {row.area} {line_of(row)}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def line_of(row: Row) -> str:
    """Return a row as a line of a Markdown table, without its area."""
    return (
        f"| {row.what} | {row.measured} | {row.reference} | {row.ratio:.2f} "
        f"| {row.target} | {'yes' if row.met else '**no**'} |"
    )
