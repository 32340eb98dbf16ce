"""docs/benchmarks.md, written from the rows in docs/benchmarks. Pure, except for `write`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import figures
from benchmarks.areas import AREAS, Area
from benchmarks.figures import ROOT, Measured
from benchmarks.report import Row, line_of

PAGE = ROOT / "docs" / "benchmarks.md"

Rows = Mapping[str, Sequence[Measured]]
"""The rows of every area, by its name."""

_INTRODUCTION = """\
# Benchmarks

Ottla against Apache Kafka 4.2.1 on the same machine, in the same minutes. Figures are medians of
five rounds; a ratio to Kafka is Ottla's figure divided by Kafka's, and the range in brackets is
that of the rounds. Rows that were measured in an earlier form of these benchmarks say so.

## Five numbers

"""
_HOW = """
## How it is measured

- **Both brokers are warm.** Each has served 5 GB of the kind of traffic that is measured before
  anything counts: before that Kafka's JIT compiler still works, and a comparison shows a younger
  JVM, not a slower broker.
- **The page cache is warm.** A file of the size is written and deleted first: on a virtual
  machine the first use of a page of memory costs ten times a later one. Topics are deleted after
  each turn, and their files are gone before the next one begins.
- **They take turns.** The order alternates from round to round, and the broker that waits is
  stopped (SIGSTOP): an idle JVM takes some percent of a core.
- **One core each.** One broker has the first core, the client the second one. Three nodes share
  both with the client.
- **Defaults.** Both run the default settings, except that the session of a single node does not
  expire while it is stopped, that deleted files are removed after half a second, and that there
  are as many replicas as nodes.
- **Ratios are comparable, absolute figures are not**: they are those of two cores of a shared
  machine.

`make bench AREA="throughput java"` measures areas and writes their rows and this page;
`make bench` measures all areas that were not yet measured at this commit. `QUICK=1` prints
figures of a short run with cold brokers, which are good for trying the code and nothing else;
they are never written here.
"""


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the numbers at the top: a row, its name for readers, and what its ratio means."""

    area: str
    what: str
    title: str
    meaning: Callable[[float], str]


def _faster(what: str) -> Callable[[float], str]:
    def meaning(ratio: float) -> str:
        if 0.97 <= ratio <= 1.03:
            return f"{what}: as fast as Kafka."
        if ratio > 1:
            return f"{what}: {ratio:.2f} times as fast as Kafka."
        return f"{what}: slower than Kafka, {ratio:.2f} of its rate."

    return meaning


def _cheaper(what: str) -> Callable[[float], str]:
    def meaning(ratio: float) -> str:
        if 0.97 <= ratio <= 1.03:
            return f"{what}: the same as Kafka."
        return f"{what}: {'less' if ratio < 1 else 'more'} than Kafka, {ratio:.2f} of it."

    return meaning


HEADLINES = (
    Headline(
        "throughput",
        "produce, 1024 B, acks=all",
        "Produce, librdkafka, 1 KiB, acks=all",
        _faster("What clients built on librdkafka (Python, Go, C#, Node) can write to one core"),
    ),
    Headline(
        "java",
        "produce, lz4",
        "Produce, Java client, lz4, 12 partitions",
        _faster("What most users run: the Java client with its defaults and a codec"),
    ),
    Headline(
        "throughput",
        "broker CPU per GB produced, 1024 B, acks=all",
        "Broker CPU per GB produced, 1 KiB, acks=all",
        _cheaper("What a gigabyte costs the broker's machine"),
    ),
    Headline(
        "latency",
        "end to end at 1,000 per s, acks=all, p99",
        "Producer to consumer, p99, 1,000 records/s, acks=all",
        _cheaper("How long the slowest percent of records takes at a moderate rate"),
    ),
    Headline(
        "throughput",
        "RSS after the loads above",
        "Memory (RSS) after these loads",
        _cheaper("What has to be reserved for a broker beside the page cache"),
    ),
)


def render(rows: Rows, areas: Sequence[Area] = AREAS) -> str:
    """Return the page."""
    parts = [_INTRODUCTION, _headlines(rows), _HOW]
    parts += [_section(area, rows.get(area.name, ())) for area in areas]
    return "".join(parts)


def _headlines(rows: Rows) -> str:
    lines = ["| | Ottla | Kafka | Ratio | What it means |", "|---|---|---|---:|---|"]
    for number, headline in enumerate(HEADLINES, 1):
        row = _row_of(rows, headline)
        title = f"{number}. {headline.title}"
        if row is None:
            lines.append(f"| {title} | not measured yet | | | |")
        else:
            theirs = row.reference.removeprefix("Kafka, ")
            cells = (title, row.measured, theirs, f"{row.ratio:.2f}", headline.meaning(row.ratio))
            lines.append(f"| {' | '.join(cells)} |")
    missed = [measured.row for each in rows.values() for measured in each if not measured.row.met]
    total = sum(map(len, rows.values()))
    return "\n".join(lines) + f"\n\n{total - len(missed)} of {total} rows meet their targets.\n"


def _row_of(rows: Rows, headline: Headline) -> Row | None:
    """Return the row of a headline, unless it was measured in an earlier form."""
    for measured in rows.get(headline.area, ()):
        if measured.row.what == headline.what and not measured.run.form:
            return measured.row
    return None


def _section(area: Area, rows: Sequence[Measured]) -> str:
    head = f"\n## {area.title}\n\n{area.how}\n\n"
    if not rows:
        return head + f"Not measured yet (`make bench AREA={area.name}`, {area.minutes} min).\n"
    table = [
        "| What | Measured | Reference | Ratio | Target | Met |",
        "|---|---|---|---:|---|:--:|",
        *(line_of(measured.row) for measured in rows),
    ]
    return f"{head}{_runs(area, rows)}\n\n" + "\n".join(table) + "\n"


def _runs(area: Area, rows: Sequence[Measured]) -> str:
    """Return when the rows of an area were measured, one sentence for each run."""
    sentences = []
    for run in dict.fromkeys(measured.run for measured in rows):
        commit = f", commit {run.commit}" if run.commit else ""
        load = "" if run.load is None else f", load average {run.load:.1f} at the start"
        form = f", {run.form}" if run.form else ""
        sentences.append(f"Measured {run.date}, {run.machine}{commit}{load}{form}.")
    return " ".join(sentences) + f" `make bench AREA={area.name}`"


def write(page: Path = PAGE, folder: Path = figures.FOLDER) -> None:
    """Write the page from the recorded rows."""
    page.write_text(render({area.name: figures.load(area.name, folder) for area in AREAS}))
