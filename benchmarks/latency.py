"""Compare the latency from a producer to a consumer with Apache Kafka, in one run.

A librdkafka producer sends paced records, one per request at low rates, and a consumer in the same
process receives them; the latency is from the call of the producer to the hands of the consumer.

    one node        both brokers run, pinned to the first core, and are measured in alternation;
                    the other one is paused: at rest Kafka takes 4 % of the core, and the slowest
                    percent of our records would be those that had to wait for it
    three replicas  one cluster runs after the other: three Kafkas and the clients leave a second
                    cluster no processor time on a small machine
    bare            one node, and a server in C that only appends and passes on (`bare_broker.c`):
                    what it takes is the time of the client and of the machine

Before anything is counted, both get the same load, so that Kafka's JVM has compiled its code.
A broker that does not keep up with a rate gets the rate it reached into its row: its latencies are
then those of a growing queue.

    python -m benchmarks.latency [--quick] [--one-node | --three-replicas | --bare] [--rounds N]
                                 [--seconds S] [--write]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.free_ports import free_ports

from benchmarks.broker.brokers import (
    BROKER_CORE,
    Broker,
    Missing,
    exit_on_sigterm,
    fetch_jars,
    kafka,
    ottla,
    pinned,
    stopped_after,
)
from benchmarks.broker.comparison import create_topic
from benchmarks.broker.programs import measure, program
from benchmarks.cluster import Three, running, three_of
from benchmarks.report import Row, render, spread, write_rows

AREA = "latency"
RATES = (200, 1_000, 10_000)
RECORDS_MIN = 2_000
"""At low rates a figure takes longer: its slowest percent should be more than a few records."""
RATE_KEPT_MIN = 0.95
"""The share of a rate that has to arrive, or the row says what did."""
P50_MAX, P99_MAX = 0.9, 0.5
"""The targets, as shares of Kafka's latencies."""
WARM_RECORDS, WARM_RECORD_BYTES = 400_000, 100
WARM_RATE = 2_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds, the seconds of each figure, and those of the warm-up."""

    rounds: int
    seconds: float
    warm_seconds: float = 6.0


FULL = Effort(3, 5.0)
QUICK = Effort(1, 3.0, 3.0)


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
THREE_REPLICAS = (Kind("all", "three replicas, acks=all"),)


@dataclass(slots=True)
class Place:
    """A broker or a cluster; ``create`` makes a topic in it."""

    name: str
    bootstrap: str
    create: Callable[[str], object]

    def warm_up(self, effort: Effort, kinds: Sequence[Kind]) -> None:
        """Produce and consume, many records at once and paced ones."""
        self.create("warm")
        count = int(WARM_RECORDS * effort.warm_seconds / FULL.warm_seconds)
        size = WARM_RECORD_BYTES
        measure("rdload", "produce", self.bootstrap, "warm", size, count, "all")
        measure("rdload", "consume", self.bootstrap, "warm", count)
        for kind in kinds:
            self.create(f"warm-{kind.acks}")
            paced = int(WARM_RATE * effort.warm_seconds)
            topic = f"warm-{kind.acks}"
            measure("rdload", "latency", self.bootstrap, topic, paced, WARM_RATE, kind.acks)


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

    def measure(
        self, place: Place, cell: Cell, turn: int, seconds: float, other: Broker | None = None
    ) -> None:
        """Measure one round, while ``other`` is paused for less than its session lasts."""
        kind, rate = cell
        topic = f"latency-{kind.acks}-{rate}-{turn}"
        place.create(topic)
        count = int(rate * seconds) if other is not None else max(int(rate * seconds), RECORDS_MIN)
        with other.paused() if other is not None else nullcontext():
            out = measure("rdload", "latency", place.bootstrap, topic, count, rate, kind.acks)
        figure = Figure(out["p50"], out["p99"], out["rate"])
        self.figures.setdefault(cell, []).append(figure)
        shown = f"{_shown(figure.p50)}, {_shown(figure.p99)}, {figure.rate:,.0f} per s"
        what = f"{place.name} at {rate:,} per s, {kind.label}"
        print(f"{AREA}: {what}: {shown}", file=sys.stderr, flush=True)


def rows_of(
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
        p50s, p99s = [each.p50 for each in mine], [each.p99 for each in mine]
        kept, kept_by_other = _reached(mine, rate), _reached(other, rate)
        p50_max, p99_max = limits or (None, None)
        for figure, taken, reference, limit in (
            ("p50", p50s, [each.p50 for each in other], p50_max),
            ("p99", p99s, [each.p99 for each in other], p99_max),
        ):
            ratios = [a / b for a, b in zip(taken, reference, strict=True)]
            ratio = statistics.median(ratios)
            measured = f"{_shown(statistics.median(taken))}{kept} ({spread(ratios)})"
            shown = f"{name}, {_shown(statistics.median(reference))}{kept_by_other}"
            met = limit is None or (ratio <= limit and not kept)
            target = "reported" if limit is None else f"at most {limit}"
            rows.append(Row(AREA, f"{what}, {figure}", measured, shown, ratio, target, met))
    return rows


def _reached(figures: Sequence[Figure], rate: int) -> str:
    """Return what a row says of a broker that fell behind the rate; nothing if it kept up."""
    reached = statistics.median(each.rate for each in figures)
    return "" if reached >= RATE_KEPT_MIN * rate else f", fell behind: {reached:,.0f} per s"


def _shown(value: float) -> str:
    return f"{value * 1000:.2f} ms"


def one_node(folder: Path, effort: Effort) -> list[Row]:
    """Return the rows of one node."""
    brokers = (ottla(folder / "ottla"), kafka(folder / "kafka"))
    ours, theirs = Found(), Found()
    with stopped_after(*brokers):
        places = []
        for broker in brokers:
            broker.format()
            broker.start()
            place = Place(broker.name, broker.bootstrap, _creating(broker))
            place.warm_up(effort, ONE_NODE)
            places.append(place)
        for kind in ONE_NODE:
            for rate in RATES:
                for turn in range(effort.rounds):
                    for place, found, other in zip(
                        places, (ours, theirs), reversed(brokers), strict=True
                    ):
                        found.measure(place, (kind, rate), turn, effort.seconds, other)
    return rows_of(ours, theirs)


def _creating(broker: Broker) -> Callable[[str], None]:
    return lambda topic: create_topic(broker, topic)


def three_replicas(folder: Path, effort: Effort) -> list[Row]:
    """Return the rows of three nodes: first all of ours, then all of Kafka's."""
    found = {"Ottla": Found(), "Kafka": Found()}
    for name in found:
        three: Three = three_of(name, folder)
        with running(three):
            place = Place(name, three.bootstrap, three.create)
            place.warm_up(effort, THREE_REPLICAS)
            for kind in THREE_REPLICAS:
                for rate in RATES:
                    for turn in range(effort.rounds):
                        found[name].measure(place, (kind, rate), turn, effort.seconds)
    return rows_of(found["Ottla"], found["Kafka"])


def bare(folder: Path, effort: Effort) -> list[Row]:
    """Return the rows of one node and of a bare server, measured in alternation."""
    broker, kind = ottla(folder / "ottla"), ONE_NODE[0]
    ours, floor = Found(), Found()
    with stopped_after(broker), _bare_server(folder) as server:
        broker.format()
        broker.start()
        place = Place(broker.name, broker.bootstrap, _creating(broker))
        place.warm_up(effort, (kind,))
        for rate in RATES:
            for turn in range(effort.rounds):
                for each, found in ((place, ours), (server, floor)):
                    found.measure(each, (kind, rate), turn, effort.seconds)
    return rows_of(ours, floor, name="the C server", beside=", beside a bare C server", limits=None)


@contextmanager
def _bare_server(folder: Path) -> Iterator[Place]:
    """Run the bare server; it serves every topic from one log, so that none is created."""
    (port,) = free_ports(1)
    command = [*pinned(BROKER_CORE), program("bare_broker"), str(folder / "bare"), str(port)]
    with subprocess.Popen(command) as process:
        try:
            yield Place("bare C server", f"127.0.0.1:{port}", lambda _: None)
        finally:
            process.kill()


Part = Callable[[Path, Effort], list[Row]]
PARTS: tuple[Part, ...] = (one_node, three_replicas, bare)


def run(effort: Effort = FULL, parts: Sequence[Part] = PARTS) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java or a compiler is missing."""
    try:
        program("rdload")
        fetch_jars()
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    rows: list[Row] = []
    for part in parts:
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="ottla-bench-")
            rows += part(Path(stack.enter_context(temporary)), effort)
    return rows


def main() -> int:
    """Measure and print; return 1 if a target is missed or nothing could be measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about four minutes; noisier")
    parser.add_argument("--rounds", type=int, help="how often each figure is measured")
    parser.add_argument("--seconds", type=float, help="of each figure in a round; at most 5")
    parser.add_argument("--write", action="store_true", help="replace the rows of the page")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--one-node", action="store_true", help="without the clusters of three")
    which.add_argument("--three-replicas", action="store_true", help="only the clusters of three")
    which.add_argument("--bare", action="store_true", help="only Ottla and a bare C server")
    arguments = parser.parse_args()
    exit_on_sigterm()
    effort = QUICK if arguments.quick else FULL
    effort = Effort(
        arguments.rounds or effort.rounds, arguments.seconds or effort.seconds, effort.warm_seconds
    )
    parts = PARTS
    if arguments.one_node:
        parts = (one_node,)
    elif arguments.three_replicas:
        parts = (three_replicas,)
    elif arguments.bare:
        parts = (bare,)
    rows = run(effort, parts)
    print(render(rows))
    if arguments.write:
        write_rows(rows)
    return 0 if rows and all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
