"""Compare both brokers under Apache Kafka's own Java client: its performance tools, every codec.

The tools run in one JVM (`broker/JavaLoad.java`) from the first warm-up to the last turn, so that
the client's code is compiled, too. They print what they measured, and we read it.
"""

import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.broker.brokers import CLIENT_CORE, JARS, cpu_seconds_of, fetch_jars, pinned
from benchmarks.report import REPORTED, Row, Target, at_most
from benchmarks.throughput import GB, Rates
from benchmarks.warm import Bench, Pair, Side, say

AREA = "java"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 12
RECORD_BYTES = 1024
RECORDS = 800_000
"""Of a turn."""
PAYLOADS = 2_000
DONE = "done:"
SECONDS_MAX = 900.0
WITHOUT_RECORDS_MS_MAX = 60_000
ATTEMPTS_MAX = 3
MIB = 1 << 20
SOURCE = Path(__file__).parent / "broker" / "JavaLoad.java"
# Those of Kafka's scripts for these tools.
JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_PRODUCED = re.compile(r"^(\d+) records sent, [\d.,]+ records/sec \(([\d.]+) MB/sec\)", re.M)
WORDS = ("paid", "open", "shipped", "returned", "Berlin", "Lagos", "Lima", "Osaka", "express")


def payload(random: Random) -> str:
    """Return a record as services write it: JSON, its names repeat and its values do not."""
    items = []
    text = ""
    while len(text) < RECORD_BYTES:
        items.append(
            {
                "sku": f"{random.randrange(10**6):06}",
                "price": random.randrange(10**5),
                "state": random.choice(WORDS),
                "note": f"{random.getrandbits(64):016x}",
            }
        )
        text = str(items)
    return text[:RECORD_BYTES]


class Incomplete(Exception):
    """The client gave up some records. Its producer does so now and then with a new partition."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a tool measured: bytes of records per second, and the CPU seconds of the client."""

    rate: float
    cpu: float


class Client:
    """The JVM in which the tools run."""

    def __init__(self, process: "subprocess.Popen[str]", payloads: Path) -> None:
        self._process = process
        self._payloads = payloads

    def produce(self, side: Side, topic: str, codec: str, count: int) -> Turn:
        """Produce records; the rate counts until the last one is acknowledged."""
        output, cpu = self._run(
            "produce",
            *("--topic", topic, "--num-records", str(count), "--throughput", "-1"),
            *("--payload-file", str(self._payloads), "--bootstrap-server", side.bootstrap),
            *("--command-property", f"compression.type={codec}"),
        )
        sent, rate = _PRODUCED.findall(output)[-1]
        if int(sent) != count:
            raise Incomplete(f"{sent} of {count} records were acknowledged")
        return Turn(float(rate) * MIB, cpu)

    def consume(self, side: Side, topic: str, count: int) -> Turn:
        """Consume records in a group; the rate is that after the group was formed."""
        output, cpu = self._run(
            "consume",
            *("--topic", topic, "--num-records", str(count), "--hide-header"),
            *("--group", f"group-{topic}", "--bootstrap-server", side.bootstrap),
            *("--timeout", str(WITHOUT_RECORDS_MS_MAX)),
        )
        fields = output.strip().splitlines()[-1].split(", ")
        assert len(fields) == 10, output[-1000:]
        if int(fields[4]) < count:
            raise Incomplete(f"{fields[4]} of {count} records were read")
        return Turn(float(fields[8]) * MIB, cpu)

    def _run(self, *command: str) -> tuple[str, float]:
        """Run a tool; return its output and the CPU seconds of the JVM. Raises RuntimeError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        before = cpu_seconds_of(process.pid)
        limit = threading.Timer(SECONDS_MAX, process.kill)
        limit.start()
        try:
            process.stdin.write(" ".join(command) + "\n")
            process.stdin.flush()
            lines: list[str] = []
            for line in process.stdout:
                if line.startswith(DONE):
                    return "".join(lines), cpu_seconds_of(process.pid) - before
                lines.append(line)
        finally:
            limit.cancel()
        raise RuntimeError(f"{command}: {''.join(lines)[-1000:]}")


@contextmanager
def java_client(folder: Path) -> Iterator[Client]:
    """Run the JVM. Raises Missing."""
    fetch_jars()
    payloads = folder / "payloads"
    random = Random(7)
    payloads.write_text("\n".join(payload(random) for _ in range(PAYLOADS)))
    command = [*pinned(CLIENT_CORE), "java", *JVM, "-cp", f"{JARS}/*", str(SOURCE)]
    with (
        (folder / "java-client").open("ab") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Client(process, payloads)
        finally:
            process.kill()


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows of one node. Raises Missing."""
    with java_client(bench.folder) as client:
        pair = bench.nodes()
        yield from codec_rows(AREA, pair, client, CODECS, RECORDS, at_most(0.7))


def codec_rows(
    area: str, pair: Pair, client: Client, codecs: Sequence[str], records: int, cost: Target
) -> Iterator[Row]:
    """Yield the rows of some codecs."""
    count = pair.effort.of(records)
    for codec in codecs:

        def serve(side: Side, codec: str = codec) -> float:
            _turn(client, side, codec, count)
            return count * RECORD_BYTES

        pair.warm_up(f"the Java client, {codec}", serve)
        produced, consumed = Rates(), Rates()
        for side in pair.turns(pair.effort.rounds):
            sent, read = _turn(client, side, codec, count)
            produced.add(side.name, *sent)
            consumed.add(side.name, *read)
        yield from produced.rows(area, "produce", codec, cost)
        yield from consumed.rows(area, "consume", codec, REPORTED)


Costs = tuple[float, float, float]
"""Bytes per second, and the CPU seconds per GB of the broker and of the client."""


def _turn(client: Client, side: Side, codec: str, count: int) -> tuple[Costs, Costs]:
    """Produce and consume records. A turn in which the client gave some up is repeated."""
    gigabytes = count * RECORD_BYTES / GB
    for _ in range(ATTEMPTS_MAX):
        with side.topic(PARTITIONS) as topic:
            try:
                before = side.cpu_seconds()
                sent = client.produce(side, topic, codec, count)
                between = side.cpu_seconds()
                read = client.consume(side, topic, count)
                after = side.cpu_seconds()
            except Incomplete as reason:
                say(f"{side.name}, {codec}: repeated, {reason}")
                continue
        return (
            (sent.rate, (between - before) / gigabytes, sent.cpu / gigabytes),
            (read.rate, (after - between) / gigabytes, read.cpu / gigabytes),
        )
    raise RuntimeError(f"{side.name}, {codec}: the client gave up {ATTEMPTS_MAX} times")
