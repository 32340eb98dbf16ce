"""Compare clusters of three nodes with Apache Kafka: replicated writes, and catching up.

Catching up is compared with the loopback, too: sendfile to a reader that drops the bytes, and to
one that does only what every follower must do.
"""

import os
import socket
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from benchmarks import throughput
from benchmarks.broker.programs import measure, program
from benchmarks.broker.three import NODES, until
from benchmarks.report import (
    REPORTED,
    Figures,
    Row,
    at_least,
    megabytes_per_second,
    seconds_per_gb,
    spread,
)
from benchmarks.throughput import GB, Rates
from benchmarks.warm import Bench, Pair, Side, touch
from ottla.protocol.records.crc import crc32c

AREA = "cluster"
RECORD_BYTES = 1024
RECORDS = 600_000
BEHIND_BYTES = 2_000_000_000
"""How far a follower is behind; with 300 MB it has caught up before the first look."""


@dataclass(slots=True)
class CatchUps:
    """The figures of all rounds."""

    rate: Figures = field(default_factory=Figures)
    follower_cpu: Figures = field(default_factory=Figures)
    leader_cpu: Figures = field(default_factory=Figures)
    shares: list[float] = field(default_factory=list)
    least_shares: list[float] = field(default_factory=list)


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows. Raises Missing."""
    program("rdload")
    pair = bench.clusters()
    throughput.warm_up(pair, RECORD_BYTES)
    yield from _writes(pair)
    yield from _catch_ups(pair, bench.folder)


def _writes(pair: Pair) -> Iterator[Row]:
    produced, count = Rates(), pair.effort.of(RECORDS)
    for side in pair.turns(pair.effort.rounds):
        with side.topic() as topic:
            before = side.cpu_seconds()
            sent = measure("rdload", "produce", side.bootstrap, topic, RECORD_BYTES, count, "all")
            used = side.cpu_seconds() - before
        gigabytes = sent["bytes"] / GB
        rate = sent["bytes"] / sent["seconds"]
        produced.add(side.name, rate, used / gigabytes, sent["cpu"] / gigabytes)
    yield from produced.rows(AREA, "produce", "1024 B, 3 replicas, acks=all", REPORTED)


def _catch_ups(pair: Pair, folder: Path) -> Iterator[Row]:
    found, size = CatchUps(), BEHIND_BYTES
    for side in pair.turns(pair.effort.rounds):
        _catch_up(side, folder, size, found)
        if side.name == "Ottla":
            found.shares.append(found.rate.ours[-1] / loopback(folder, size))
            found.least_shares.append(found.rate.ours[-1] / least(folder, size))
    what = "a follower catches up"
    yield found.rate.row(AREA, what, megabytes_per_second)
    yield found.follower_cpu.row(AREA, f"{what}, its CPU time", seconds_per_gb)
    yield found.leader_cpu.row(AREA, f"{what}, its leader's", seconds_per_gb)
    ours = statistics.median(found.rate.ours)
    yield _share_row(f"{what}, of bare loopback sendfile", ours, found.shares, 0.5)
    yield _share_row(f"{what}, of receive, CRC and write", ours, found.least_shares, 0.0)


def _catch_up(side: Side, folder: Path, size: int, found: CatchUps) -> None:
    """Stop a follower, write without it, start it, and measure how it catches up."""
    three = side.three
    assert three is not None
    with side.topic() as topic:
        leader = three.leader(topic, 1)
        away = next(node for node in NODES if node not in (leader, three.controller()))
        three.nodes[away].stop()
        count = size // RECORD_BYTES
        # The other two are enough for min.insync.replicas.
        measure("rdload", "produce", side.bootstrap, topic, RECORD_BYTES, count, "all")
        end = three.end(leader, topic)
        touch(folder, size * 3 // 2)
        three.nodes[away].start()
        until(lambda: three.end(away, topic) > 0, "the follower begins")
        nodes = three.nodes[away], three.nodes[leader]
        start, before = three.end(away, topic), [node.cpu_seconds() for node in nodes]
        began = perf_counter()
        until(lambda: three.end(away, topic) >= end, "the follower has caught up")
        taken = perf_counter() - began
        missed = (end - start) * RECORD_BYTES
        assert missed > 0, f"{side.name} had caught up before the first look"
        used = [node.cpu_seconds() - was for node, was in zip(nodes, before, strict=True)]
    found.rate.add(side.name, missed / taken)
    found.follower_cpu.add(side.name, used[0] * GB / missed)
    found.leader_cpu.add(side.name, used[1] * GB / missed)


def _share_row(what: str, rate: float, shares: Sequence[float], share_min: float) -> Row:
    share = statistics.median(shares)
    target = at_least(share_min) if share_min else REPORTED
    measured = f"{megabytes_per_second(rate)} ({spread(shares)})"
    reference = megabytes_per_second(rate / share)
    return Row(AREA, what, measured, reference, share, target.text, target.is_met(share))


def loopback(folder: Path, size: int, take: Callable[[memoryview], object] = len) -> float:
    """Return the bytes per second of sendfile over loopback to a reader with large buffers."""
    with (folder / "bare").open("w+b") as file, socket.create_server(("127.0.0.1", 0)) as server:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
        file.flush()
        touch(folder, size * 3 // 2)
        child = os.fork()
        if child == 0:
            _send_all(server.getsockname()[1], file.fileno(), size >> 20 << 20)
        line, _ = server.accept()
        with line:
            room, began = memoryview(bytearray(1 << 20)), perf_counter()
            while count := line.recv_into(room):
                take(room[:count])
            taken = perf_counter() - began
        os.waitpid(child, 0)
    (folder / "bare").unlink()
    return (size >> 20 << 20) / taken


def least(folder: Path, size: int) -> float:
    """Return the bytes per second of a reader that only checks the CRC and writes."""
    with (folder / "least").open("wb", buffering=0) as file:

        def take(data: memoryview) -> None:
            crc32c(data, 0, len(data))
            for start in range(0, len(data), 1 << 18):
                file.write(data[start : start + (1 << 18)])

        rate = loopback(folder, size, take)
    (folder / "least").unlink()
    return rate


def _send_all(port: int, file: int, size: int) -> None:
    """Send a file and exit, in a child process."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        sent = 0
        while sent < size:
            sent += os.sendfile(line.fileno(), file, sent, size - sent)
    os._exit(0)
