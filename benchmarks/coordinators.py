"""Compare the coordinators of a node with those of Apache Kafka, in alternation.

Requests are prepared frames, sent by a C program (`broker/requests.c`) or by one thread that only
writes and reads them, so that the broker is what is measured. Both brokers are pinned to one core
and the load to the other, as in `benchmarks.broker`.

    python -m benchmarks.coordinators [part ...] [--quick] [--rounds N] [--write]

Each row is printed as soon as it is known. Every load first runs on both brokers without being
counted, long enough for Kafka's JVM to compile it. Three rounds take about seven minutes.

Commits leave records behind that are compacted while further ones are counted. So before the first
is counted both brokers serve the same number of them, not for the same time, in which the faster
one would have more to compact; and they take turns of a second or so, each paused in the turn of
the other. Otherwise one broker would compact on the core on which the other is measured, and one
would have the other's warm-up for it. A counted round takes the same time on both, so there each
compacts what it wrote itself.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from benchmarks.broker.brokers import Broker, Missing, kafka, ottla, stopped_after
from benchmarks.broker.programs import measure, program
from benchmarks.coordinator_load import (
    Members,
    ShareReader,
    Transactions,
    commit_frame,
    make_topic,
    wait_coordinator,
)
from benchmarks.report import HEAD, Row, line_of, spread, write_rows

AREA = "coordinators"
CONNECTIONS = 16
COMMIT_PARTITIONS = (1, 10, 100)
WARM_TURN_COMMITS = 5_000
WARM_TURN_S_MAX = 6
MEMBERS = 200
TRANSACTION_RECORDS = (1, 10, 100)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. One more round than counted runs first, to warm up the JVM.

    ``warm_commits``: how many commits each broker serves before the first one is counted.
    ``warm_seconds``: how long transactions run before.
    ``warm_beats``: how often each member of a large group beats before.
    """

    rounds: int = 3
    seconds: float = 2.0
    warm_commits: int = 75_000
    warm_seconds: float = 10.0
    warm_beats: int = 12
    heartbeat_members: int = 1000
    share_records: int = 200_000


FULL = Scale()
# A rough result within two minutes; a JVM needs longer to reach its best.
QUICK = Scale(
    rounds=1,
    seconds=1.0,
    warm_commits=15_000,
    warm_seconds=2.0,
    warm_beats=4,
    heartbeat_members=300,
    share_records=50_000,
)


class Figures:
    """One figure of both brokers, round by round."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {"Ottla": [], "Kafka": []}

    def add(self, broker: Broker, value: float) -> None:
        """Record the figure of one round."""
        self.found[broker.name].append(value)

    def row(self, what: str, unit: str, target: float, *, is_cost: bool = False) -> Row:
        """Return the row; the ratio is ours over theirs, theirs over ours for a cost."""
        ours, theirs = self.found["Ottla"], self.found["Kafka"]
        pairs = list(zip(ours, theirs, strict=True))
        ratios = [theirs / ours if is_cost else ours / theirs for ours, theirs in pairs]
        ratio = statistics.median(ratios)
        return Row(
            AREA,
            what,
            f"{statistics.median(ours):,.5g} {unit} ({spread(ratios)})",
            f"Kafka, {statistics.median(theirs):,.5g} {unit}",
            ratio,
            f"at least {target}",
            ratio >= target,
        )


def run(
    scale: Scale = FULL, parts: Sequence[str] = (), on_row: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Measure everything, or the named parts; nothing if Apache Kafka is missing.

    ``on_row`` receives each row when it is known.
    """
    try:
        program("requests")
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
            folder = Path(temporary)
            brokers = (ottla(folder / "ottla"), kafka(folder / "kafka"))
            with stopped_after(*brokers):
                for broker in brokers:
                    broker.format()
                    broker.start()
                    make_topic(broker, "t", 100)
                rows: list[Row] = []
                for name, part in PARTS.items():
                    for row in part(brokers, folder, scale) if name in (parts or PARTS) else ():
                        on_row(row)
                        rows.append(row)
                return rows
    except Missing as missing:
        print(f"coordinators are not compared: {missing}")
        return []


# -- offset commits ----------------------------------------------------------------------


def commits(brokers: Sequence[Broker], folder: Path, scale: Scale) -> Iterator[Row]:
    """Yield rows on offset commits of a group without members, over some connections."""
    frame = folder / "commit"
    frame.write_bytes(commit_frame("g", "t", max(COMMIT_PARTITIONS)))
    for broker in brokers:
        wait_coordinator(broker, "g", 0)
    # Both are measured warm: the JVM compiles what it has run some ten thousand times.
    for _ in range(scale.warm_commits // WARM_TURN_COMMITS):
        for broker in brokers:
            _commit(broker, brokers, frame, WARM_TURN_S_MAX, WARM_TURN_COMMITS)
    for count in COMMIT_PARTITIONS:
        rate, cost = Figures(), Figures()
        frame.write_bytes(commit_frame("g", "t", count))
        for turn in range(scale.rounds + 1):
            for broker in brokers:
                before = broker.cpu_seconds()
                reached = _commit(broker, brokers, frame, scale.seconds)
                used = broker.cpu_seconds() - before
                if turn:
                    rate.add(broker, reached)
                    cost.add(broker, used * 1e6 / (reached * scale.seconds))
        label = f"OffsetCommit of {count} partition{'s' if count > 1 else ''}"
        target = {1: 0.5, 10: 1.2}.get(count, 1.0)
        yield rate.row(label, "per s", target)
        yield cost.row(f"{label}, CPU of each", "us", target, is_cost=True)


def _commit(
    broker: Broker, brokers: Sequence[Broker], frame: Path, seconds: float, count: int = 10**7
) -> float:
    """Send commits for so many seconds, ``count`` at most; return their rate per second.

    The other brokers are paused: what they do in the background must not slow down this one.
    """
    with ExitStack() as pauses:
        for other in brokers:
            if other is not broker:
                pauses.enter_context(other.paused())
        target = ("127.0.0.1", broker.port, frame, CONNECTIONS, seconds)
        return measure("requests", *target, "none", count)["rate"]


# -- groups ------------------------------------------------------------------------------


def joins(brokers: Sequence[Broker], folder: Path, scale: Scale) -> Iterator[Row]:
    """Yield rows on the time in which so many members form a stable group."""
    figures, cost = Figures(), Figures()
    for turn in range(scale.rounds + 1):
        for broker in brokers:
            wait_coordinator(broker, f"join-{turn}", 0)
            members = Members(broker, f"join-{turn}", MEMBERS)
            before, began = broker.cpu_seconds(), perf_counter()
            members.join()
            taken, used = perf_counter() - began, broker.cpu_seconds() - before
            members.close()
            if turn:
                figures.add(broker, taken)
                cost.add(broker, used)
    label = f"a classic group of {MEMBERS} members, from nothing to stable"
    yield figures.row(label, "s", 0.5, is_cost=True)
    yield cost.row(f"{label}, CPU", "s", 0.5, is_cost=True)


def heartbeats(brokers: Sequence[Broker], folder: Path, scale: Scale) -> Iterator[Row]:
    """Yield a row on what the heartbeats of a large consumer group cost, as a share of a core."""
    figures = Figures()
    for broker in brokers:
        wait_coordinator(broker, "beats", 0)
        members = Members(broker, "beats", scale.heartbeat_members)
        members.join_consumers()
        # Kafka's JVM compiles what it has run some ten thousand times.
        members.beat(scale.warm_beats)
        for _ in range(scale.rounds):
            before = broker.cpu_seconds()
            beats = members.beat(2)
            used = broker.cpu_seconds() - before
            # A member beats every five seconds.
            figures.add(broker, used / beats * scale.heartbeat_members / 5 * 100)
        members.close()
    label = f"heartbeats of {scale.heartbeat_members:,} members (KIP-848), of one core"
    yield figures.row(label, "%", 0.5, is_cost=True)


# -- transactions ------------------------------------------------------------------------


def transactions(brokers: Sequence[Broker], folder: Path, scale: Scale) -> Iterator[Row]:
    """Yield rows on transactions of one partition, one after the other by several producers."""
    for broker in brokers:
        load = Transactions(broker, "t", TRANSACTION_RECORDS[-1])
        load.run(scale.warm_seconds)
        load.close()
    for records in TRANSACTION_RECORDS:
        rate, cost = Figures(), Figures()
        loads = {broker.name: Transactions(broker, "t", records) for broker in brokers}
        for turn in range(scale.rounds + 1):
            for broker in brokers:
                before = broker.cpu_seconds()
                done = loads[broker.name].run(scale.seconds)
                used = broker.cpu_seconds() - before
                if turn:
                    rate.add(broker, done / scale.seconds)
                    cost.add(broker, used * 1e6 / done)
        for load in loads.values():
            load.close()
        label = f"transactions of {records} record{'s' if records > 1 else ''}"
        yield rate.row(label, "per s", 0.5)
        yield cost.row(f"{label}, CPU of each", "us", 0.5, is_cost=True)


# -- share groups ------------------------------------------------------------------------


def shares(brokers: Sequence[Broker], folder: Path, scale: Scale) -> Iterator[Row]:
    """Yield a row on reading and acknowledging through a share group."""
    figures = Figures()
    for turn in range(scale.rounds + 1):
        for broker in brokers:
            reader = ShareReader(broker, f"share-{turn}", scale.share_records)
            taken = reader.run()
            if turn:
                figures.add(broker, scale.share_records / taken)
    yield figures.row("records through a share group", "per s", 0.5)


PARTS: dict[str, Callable[[Sequence[Broker], Path, Scale], Iterator[Row]]] = {
    "commits": commits,
    "joins": joins,
    "heartbeats": heartbeats,
    "transactions": transactions,
    "shares": shares,
}


def main() -> int:
    """Run the given parts; fail if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="one short round, within two minutes")
    parser.add_argument("--rounds", type=int, help="how many rounds count")
    parser.add_argument("--write", action="store_true", help="replace the rows of the page")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.parts) - set(PARTS))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    scale = QUICK if arguments.quick else FULL
    if arguments.rounds is not None:
        scale = replace(scale, rounds=max(1, arguments.rounds))
    print("\n".join(HEAD), flush=True)
    rows = run(scale, arguments.parts, lambda row: print(line_of(row), flush=True))
    if arguments.write:
        write_rows(rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
