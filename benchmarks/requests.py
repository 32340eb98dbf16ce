"""Compare small Produce requests, one after the other over some connections, with Apache Kafka."""

import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker.brokers import BROKER_CORE, pinned
from benchmarks.broker.line import make_topic
from benchmarks.broker.programs import measure, program
from benchmarks.report import Figures, Row, milliseconds, per_second, spread
from benchmarks.warm import Bench, Pair, Side
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset

AREA = "requests"
PRODUCE_VERSION = 9
TOPIC = "small"
CONNECTIONS = (1, 4, 16)
SECONDS = 4.0
WARM_REQUESTS = 400_000
RATE_MIN, SHARE_MIN = 25_000, 0.3
# The size of a Produce v9 reply for one partition; the bare server sends as much.
REPLY_BYTES = 60


def small_request(topic: str) -> bytes:
    """Return the frame of a Produce of one record of 100 bytes, acks=1."""
    batch = build_batch([Record(Offset(0), Millis(1_700_000_000_000), None, b"x" * 100)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
    header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench")
    return bytes(request_frame(header, ProduceRequest(None, 1, 30_000, [data])))


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows of all numbers of connections. Raises Missing."""
    program("requests")
    pair = bench.nodes()
    frame = bench.folder / "frame"
    frame.write_bytes(small_request(TOPIC))
    for side in pair.sides:
        make_topic([side.node], TOPIC, 1)

    def serve(side: Side) -> float:
        seconds = max(1.0, SECONDS * bench.effort.scale)
        return _send(side.node.port, frame, max(CONNECTIONS), seconds)["rate"] * seconds

    pair.warm_up("small requests", serve, WARM_REQUESTS)
    target = [program("bare_server"), str(bench.folder / "bare"), str(REPLY_BYTES)]
    command = [*pinned(BROKER_CORE), *target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bare:
        try:
            assert bare.stdout is not None
            port = int(bare.stdout.readline())
            for connections in CONNECTIONS:
                yield from _rows(pair, frame, connections, port)
        finally:
            bare.kill()


def _send(port: int, frame: Path, connections: int, seconds: float) -> dict[str, float]:
    return measure("requests", "127.0.0.1", port, frame, connections, seconds)


def _rows(pair: Pair, frame: Path, connections: int, bare_port: int) -> Iterator[Row]:
    seconds = max(1.0, SECONDS * pair.effort.scale)
    rates, slowest, cost = Figures(), Figures(), Figures()
    for side in pair.turns(pair.effort.rounds):
        before = side.cpu_seconds()
        reply = _send(side.node.port, frame, connections, seconds)
        used = side.cpu_seconds() - before
        rates.add(side.name, reply["rate"])
        slowest.add(side.name, reply["p99"])
        cost.add(side.name, used * 1e6 / (reply["rate"] * seconds))
    label = f"small Produce over {connections} connection{'s' * (connections > 1)}"
    yield rates.row(AREA, label, per_second)
    yield slowest.row(AREA, f"{label}, p99", milliseconds)
    yield cost.row(AREA, f"{label}, broker CPU of each", lambda value: f"{value:.1f} us")
    bare = [_send(bare_port, frame, connections, seconds)["rate"] for _ in rates.ours]
    yield _bare_row(label, rates.ours, bare, is_limited=connections == max(CONNECTIONS))


def _bare_row(label: str, ours: list[float], bare: list[float], *, is_limited: bool) -> Row:
    """Return the row of our rate as a share of that of the bare server."""
    shares = [mine / floor for mine, floor in zip(ours, bare, strict=True)]
    rate, share = statistics.median(ours), statistics.median(shares)
    return Row(
        AREA,
        f"{label}, of the bare C server",
        f"{per_second(rate)} ({spread(shares)})",
        per_second(statistics.median(bare)),
        share,
        f"at least {RATE_MIN:,} per s and {SHARE_MIN}" if is_limited else "reported",
        not is_limited or (rate >= RATE_MIN and share >= SHARE_MIN),
    )
