"""Compare the latency from a producer to a consumer with Apache Kafka, in one run.

A librdkafka producer sends paced records, one per request at low rates, and a consumer in the same
process receives them; the latency is from the call of the producer to the hands of the consumer.
With one node, and with three replicas on three nodes.

    python -m benchmarks.latency [--quick]
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.broker.brokers import Broker, Missing, fetch_jars, kafka, ottla, stopped_after
from benchmarks.broker.comparison import Figures, create_topic
from benchmarks.broker.programs import measure, program
from benchmarks.cluster import Three, running, three_of
from benchmarks.report import Row, render

AREA = "latency"
RATES = (200, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds that count, and the seconds of each figure."""

    rounds: int
    seconds: float


FULL = Effort(3, 10.0)
QUICK = Effort(1, 3.0)


@dataclass(slots=True)
class _Place:
    """A broker or a cluster; ``create`` makes a topic in it."""

    broker: Broker
    bootstrap: str
    create: Callable[[str], object]


def _measured(places: Sequence[_Place], acks: str, label: str, effort: Effort) -> list[Row]:
    """Return the rows of one kind of topic. The first round, which warms up, is not counted."""
    rows: list[Row] = []
    for rate in RATES:
        p50, p99 = Figures(), Figures()
        for turn in range(effort.rounds + 1):
            for place in places:
                topic = f"latency-{acks}-{rate}-{turn}"
                place.create(topic)
                count = int(rate * effort.seconds)
                found = measure("rdload", "latency", place.bootstrap, topic, count, rate, acks)
                if turn:
                    p50.of(place.broker).append(found["p50"])
                    p99.of(place.broker).append(found["p99"])
        what = f"end to end at {rate:,} per s, {label}"
        rows += [
            p50.row(f"{what}, p50", _shown, "at most 0.9", lambda r: r <= 0.9),
            p99.row(f"{what}, p99", _shown, "at most 0.5", lambda r: r <= 0.5),
        ]
        for row in rows[-2:]:
            line = f"{row.what}: {row.measured}, {row.reference}: {row.ratio:.2f}"
            print(f"{AREA}: {line}", file=sys.stderr, flush=True)
    return [replace(row, area=AREA) for row in rows]


def _shown(value: float) -> str:
    return f"{value * 1000:.2f} ms"


def one_node(folder: Path, effort: Effort) -> list[Row]:
    """Return the rows of one node."""
    brokers = (ottla(folder / "ottla"), kafka(folder / "kafka"))
    with stopped_after(*brokers):
        places = []
        for broker in brokers:
            broker.format()
            broker.start()
            places.append(_Place(broker, broker.bootstrap, _creating(broker)))
        rows = _measured(places, "1", "acks=1", effort)
        return rows + _measured(places, "all", "acks=all", effort)


def _creating(broker: Broker) -> Callable[[str], None]:
    return lambda topic: create_topic(broker, topic)


def three_replicas(folder: Path, effort: Effort) -> list[Row]:
    """Return the rows of three nodes."""
    with ExitStack() as stack:
        places = []
        for name in ("Ottla", "Kafka"):
            three: Three = three_of(name, folder)
            stack.enter_context(running(three))
            places.append(_Place(three.nodes[1], three.bootstrap, three.create))
        return _measured(places, "all", "three replicas, acks=all", effort)


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java or a compiler is missing."""
    try:
        program("rdload")
        fetch_jars()
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
        folder = Path(temporary)
        return one_node(folder, effort) + three_replicas(folder, effort)


def main() -> int:
    """Measure and print; return 1 if a target is missed or nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under four minutes; noisier")
    parser.add_argument("--one-node", action="store_true", help="without the cluster of three")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    if arguments.one_node:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
            rows = one_node(Path(temporary), effort)
    else:
        rows = run(effort)
    print(render(rows))
    return 0 if rows and all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
