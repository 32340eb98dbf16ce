"""Compare the latency from a producer to a consumer with Apache Kafka, in one run.

A librdkafka producer sends paced records, one per request at low rates, and a consumer in the same
process receives them; the latency is from the call of the producer to the hands of the consumer.

    one node        the brokers take turns on the first core, and the other one is stopped: at rest
                    Kafka takes 4 % of the core, and the slowest percent of our records would be
                    those that had to wait for it
    three replicas  clusters of three nodes take turns on both cores (`latency_replicated`)
    bare            one node, and a server in C that only appends and passes on (`bare_broker.c`):
                    what it takes is the time of the client and of the machine

A broker that does not keep up with a rate gets the rate it reached into its row: its latencies are
then those of a growing queue.
"""

import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.free_ports import free_ports

from benchmarks import throughput
from benchmarks.broker.brokers import BROKER_CORE, pinned
from benchmarks.broker.programs import measure, program
from benchmarks.report import Row, milliseconds, spread
from benchmarks.warm import Bench, Pair, Side, say

AREA = "latency"
RATES = (200, 1_000, 10_000)
RECORDS_MIN = 2_000
"""At low rates a figure takes longer: its slowest percent should be more than a few records."""
RATE_KEPT_MIN = 0.95
"""The share of a rate that has to arrive, or the row says what did."""
P50_MAX, P99_MAX = 0.9, 0.5
"""The targets, as shares of Kafka's latencies."""
SECONDS = 5.0
"""Of one figure; at low rates it takes longer."""
WARM_RATE, WARM_RECORDS = 2_000, 40_000
"""Paced records, after the records of the warm-up of `benchmarks.throughput`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a producer does: ``acks`` as rdload takes it."""

    acks: str
    label: str


ONE_NODE = (
    Kind("1", "acks=1"),
    Kind("all", "acks=all"),
    Kind("idempotent", "idempotent"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """The latencies of one round in seconds, and the records per second that arrived."""

    p50: float
    p99: float
    rate: float


Cell = tuple[Kind, int]


@dataclass(slots=True)
class Found:
    """The figures of every kind and rate, round by round."""

    figures: dict[Cell, list[Figure]] = field(default_factory=dict)

    def add(self, name: str, bootstrap: str, topic: str, cell: Cell, scale: float) -> None:
        """Measure one round."""
        kind, rate = cell
        count = max(int(rate * SECONDS * scale), int(RECORDS_MIN * scale))
        out = measure("rdload", "latency", bootstrap, topic, count, rate, kind.acks)
        figure = Figure(out["p50"], out["p99"], out["rate"])
        self.figures.setdefault(cell, []).append(figure)
        shown = f"{milliseconds(figure.p50)}, {milliseconds(figure.p99)}, {figure.rate:,.0f} per s"
        say(f"{AREA}: {name} at {rate:,} per s, {kind.label}: {shown}")


def rows_of(
    area: str,
    ours: Found,
    theirs: Found,
    *,
    name: str = "Kafka",
    beside: str = "",
    limits: tuple[float, float] | None = (P50_MAX, P99_MAX),
) -> list[Row]:
    """Return the rows of all figures, those of ``theirs`` under ``name``.

    ``limits`` are the targets of p50 and p99; None: the rows only report.
    """
    rows: list[Row] = []
    for (kind, rate), mine in ours.figures.items():
        other = theirs.figures[kind, rate]
        what = f"end to end at {rate:,} per s, {kind.label}{beside}"
        p50s, p99s = [figure.p50 for figure in mine], [figure.p99 for figure in mine]
        kept, kept_by_other = _reached(mine, rate), _reached(other, rate)
        p50_max, p99_max = limits or (None, None)
        for name_of, taken, reference, limit in (
            ("p50", p50s, [figure.p50 for figure in other], p50_max),
            ("p99", p99s, [figure.p99 for figure in other], p99_max),
        ):
            ratios = [a / b for a, b in zip(taken, reference, strict=True)]
            ratio = statistics.median(ratios)
            measured = f"{milliseconds(statistics.median(taken))}{kept} ({spread(ratios)})"
            shown = f"{name}, {milliseconds(statistics.median(reference))}{kept_by_other}"
            met = limit is None or (ratio <= limit and not kept)
            target = "reported" if limit is None else f"at most {limit}"
            rows.append(Row(area, f"{what}, {name_of}", measured, shown, ratio, target, met))
    return rows


def _reached(figures: Sequence[Figure], rate: int) -> str:
    """Return what a row says of a broker that fell behind the rate; nothing if it kept up."""
    reached = statistics.median(figure.rate for figure in figures)
    return "" if reached >= RATE_KEPT_MIN * rate else f", fell behind: {reached:,.0f} per s"


def compared(area: str, pair: Pair, kinds: Sequence[Kind]) -> Iterator[Row]:
    """Yield the rows of both sides in turn, each kind as soon as it is measured."""
    _warm_up(pair, kinds)
    for kind in kinds:
        ours, theirs = Found(), Found()
        for rate in RATES:
            for side in pair.turns(pair.effort.rounds):
                found = ours if side.name == "Ottla" else theirs
                with side.topic() as topic:
                    found.add(side.name, side.bootstrap, topic, (kind, rate), pair.effort.scale)
        yield from rows_of(area, ours, theirs)


def _warm_up(pair: Pair, kinds: Sequence[Kind]) -> None:
    throughput.warm_up(pair, 1024)
    for kind in kinds:

        def serve(side: Side, kind: Kind = kind) -> float:
            count = pair.effort.of(WARM_RECORDS)
            with side.topic() as topic:
                measure("rdload", "latency", side.bootstrap, topic, count, WARM_RATE, kind.acks)
            return count

        pair.warm_up(f"paced records, {kind.label}", serve, WARM_RECORDS)


def bare(pair: Pair, folder: Path) -> Iterator[Row]:
    """Yield the rows of our node and of a bare server, in alternation, while Kafka is stopped."""
    ours, floor = Found(), Found()
    (side, _), kind = pair.sides, ONE_NODE[0]
    with pair.alone(side), _bare_server(folder) as bootstrap:
        for rate in RATES:
            for _ in range(pair.effort.rounds):
                with side.topic() as topic:
                    ours.add(side.name, side.bootstrap, topic, (kind, rate), pair.effort.scale)
                floor.add("bare C server", bootstrap, "bare", (kind, rate), pair.effort.scale)
    beside = ", beside a bare C server"
    yield from rows_of(AREA, ours, floor, name="the C server", beside=beside, limits=None)


@contextmanager
def _bare_server(folder: Path) -> Iterator[str]:
    """Run the bare server and yield its address; it serves every topic from one log."""
    (port,) = free_ports(1)
    command = [*pinned(BROKER_CORE), program("bare_broker"), str(folder / "bare-log"), str(port)]
    with subprocess.Popen(command) as process:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows of one node, and of the bare server. Raises Missing."""
    program("rdload")
    yield from compared(AREA, bench.nodes(), ONE_NODE)
    yield from bare(bench.nodes(), bench.folder)
