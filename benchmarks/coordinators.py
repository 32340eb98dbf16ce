"""Compare the coordinators of a node with those of Apache Kafka, in alternation.

Requests are prepared frames, sent by a C program (`broker/requests.c`) or by one thread that only
writes and reads them, so that the broker is what is measured. Both brokers are pinned to one core
and the load to the other, as in `benchmarks.broker`.

Every load first runs on both brokers without being counted, long enough for Kafka's JVM to compile
it.

Commits leave records behind that are compacted while further ones are counted. So before the
first is counted both brokers serve the same number of them, not for the same time, in which the
faster one would have more to compact. They take turns, each stopped in the turn of the other:
otherwise one broker would compact on the core on which the other is measured. A counted round
takes the same time on both, so there each compacts what it wrote itself.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.broker.brokers import on_client_core
from benchmarks.broker.line import make_topic
from benchmarks.broker.programs import measure, program
from benchmarks.coordinator_load import (
    Members,
    ShareReader,
    Transactions,
    commit_frame,
    wait_coordinator,
)
from benchmarks.report import Figures, Row, at_least, at_most, per_second
from benchmarks.warm import Bench, Pair, Side

AREA = "coordinators"
TOPIC = "t"
CONNECTIONS = 16
COMMIT_PARTITIONS = (1, 10, 100)
COMMIT_TARGETS = {1: 0.5, 10: 1.2, 100: 1.0}
WARM_COMMITS, WARM_TURN_COMMITS, WARM_TURN_S_MAX = 75_000, 5_000, 6
MEMBERS, BEATING_MEMBERS = 200, 1_000
TRANSACTION_RECORDS = (1, 10, 100)
WARM_TRANSACTIONS_S, WARM_BEATS = 10.0, 12
SHARE_RECORDS = 200_000
SECONDS = 2.0
"""Of a load in a turn."""
RATE_MIN, COST_MAX = 0.5, 2.0
"""The targets where no other one is given, as shares of Kafka's."""


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows of all parts. Raises Missing."""
    program("requests")
    pair = bench.nodes()
    for side in pair.sides:
        make_topic([side.node], TOPIC, 100)
    yield from commits(pair, bench.folder)
    yield from joins(pair)
    yield from heartbeats(pair)
    yield from transactions(pair)
    yield from shares(pair)


def _seconds(pair: Pair) -> float:
    return max(0.5, SECONDS * pair.effort.scale)


def _microseconds(value: float) -> str:
    return f"{value:,.1f} us"


# -- offset commits ----------------------------------------------------------------------


def commits(pair: Pair, folder: Path) -> Iterator[Row]:
    """Yield rows on offset commits of a group without members, over some connections."""
    frame = folder / "commit"
    frame.write_bytes(commit_frame("g", TOPIC, max(COMMIT_PARTITIONS)))
    for side in pair.sides:
        wait_coordinator(side.node, "g", 0)

    def serve(side: Side) -> float:
        _commit(side, frame, WARM_TURN_S_MAX, WARM_TURN_COMMITS)
        return WARM_TURN_COMMITS

    pair.warm_up("commits", serve, WARM_COMMITS)
    seconds = _seconds(pair)
    for count, least in COMMIT_TARGETS.items():
        rate, cost = Figures(), Figures()
        frame.write_bytes(commit_frame("g", TOPIC, count))
        for side in pair.turns(pair.effort.rounds):
            before = side.cpu_seconds()
            reached = _commit(side, frame, seconds)
            used = side.cpu_seconds() - before
            rate.add(side.name, reached)
            cost.add(side.name, used * 1e6 / (reached * seconds))
        label = f"OffsetCommit of {count} partition{'s' * (count > 1)}"
        yield rate.row(AREA, label, per_second, at_least(least))
        limit = at_most(round(1 / least, 2))
        yield cost.row(AREA, f"{label}, CPU of each", _microseconds, limit)


def _commit(side: Side, frame: Path, seconds: float, count: int = 10**7) -> float:
    """Send commits for so many seconds, ``count`` at most; return their rate per second."""
    target = ("127.0.0.1", side.node.port, frame, CONNECTIONS, seconds)
    return measure("requests", *target, "none", count)["rate"]


# -- groups ------------------------------------------------------------------------------


def joins(pair: Pair) -> Iterator[Row]:
    """Yield rows on the time in which so many members form a stable group."""
    times, cost = Figures(), Figures()
    rounds = pair.effort.rounds
    for number, side in enumerate(pair.turns(rounds + 1)):
        with on_client_core():
            wait_coordinator(side.node, f"join-{number}", 0)
            members = Members(side.node, f"join-{number}", MEMBERS)
            before, began = side.cpu_seconds(), perf_counter()
            members.join()
            taken, used = perf_counter() - began, side.cpu_seconds() - before
            members.close()
        if number >= len(pair.sides):  # the first round warms up
            times.add(side.name, taken)
            cost.add(side.name, used)
    label = f"a classic group of {MEMBERS} members, from nothing to stable"
    yield times.row(AREA, label, lambda value: f"{value:.2f} s", at_most(COST_MAX))
    yield cost.row(AREA, f"{label}, CPU", lambda value: f"{value:.2f} s", at_most(COST_MAX))


def heartbeats(pair: Pair) -> Iterator[Row]:
    """Yield a row on what the heartbeats of a large consumer group cost, as a share of a core.

    Members cannot wait for the turn of the other broker: their sessions would expire.
    """
    figures = Figures()
    count = BEATING_MEMBERS
    for side in pair.sides:
        with pair.alone(side), on_client_core():
            wait_coordinator(side.node, "beats", 0)
            members = Members(side.node, "beats", count)
            members.join_consumers()
            members.beat(WARM_BEATS)
            for _ in range(pair.effort.rounds):
                before = side.cpu_seconds()
                beats = members.beat(4)
                used = side.cpu_seconds() - before
                # A member beats every five seconds.
                figures.add(side.name, used / beats * count / 5 * 100)
            members.close()
    label = f"heartbeats of {count:,} members (KIP-848), of one core"
    yield figures.row(AREA, label, lambda value: f"{value:.2f} %", at_most(COST_MAX))


# -- transactions ------------------------------------------------------------------------


def transactions(pair: Pair) -> Iterator[Row]:
    """Yield rows on transactions of one partition, one after the other by several producers."""
    seconds = _seconds(pair)
    for records in TRANSACTION_RECORDS:
        loads = {side.name: Transactions(side.node, TOPIC, records) for side in pair.sides}

        def serve(side: Side, loads: dict[str, Transactions] = loads) -> float:
            with on_client_core():
                loads[side.name].run(seconds)
            return seconds

        pair.warm_up(f"transactions of {records}", serve, WARM_TRANSACTIONS_S)
        rate, cost = Figures(), Figures()
        for side in pair.turns(pair.effort.rounds):
            before = side.cpu_seconds()
            with on_client_core():
                done = loads[side.name].run(seconds)
            used = side.cpu_seconds() - before
            rate.add(side.name, done / seconds)
            cost.add(side.name, used * 1e6 / done)
        for load in loads.values():
            load.close()
        label = f"transactions of {records} record{'s' * (records > 1)}"
        yield rate.row(AREA, label, per_second, at_least(RATE_MIN))
        yield cost.row(AREA, f"{label}, CPU of each", _microseconds, at_most(COST_MAX))


# -- share groups ------------------------------------------------------------------------


def shares(pair: Pair) -> Iterator[Row]:
    """Yield a row on reading and acknowledging through a share group."""
    figures = Figures()
    count = pair.effort.of(SHARE_RECORDS) // 1000 * 1000
    for number, side in enumerate(pair.turns(pair.effort.rounds + 1)):
        with on_client_core():
            taken = ShareReader(side.node, f"share-{number}", count).run()
        if number >= len(pair.sides):  # the first round warms up
            figures.add(side.name, count / taken)
    yield figures.row(AREA, "records through a share group", per_second, at_least(RATE_MIN))
