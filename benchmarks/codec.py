"""Compare the codec with kio's writer (Python) and reader (native), and measure import time."""

import io
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

from kio.schema.fetch.v16 import FetchResponse as KioFetchResponse
from kio.schema.find_coordinator.v6 import FindCoordinatorResponse as KioFindCoordinatorResponse
from kio.schema.metadata.v12 import MetadataResponse as KioMetadataResponse
from kio.serial import entity_reader, entity_writer

from benchmarks.report import Row, spread
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

TOPIC_ID = Uuid(bytes(range(1, 17)))
ENCODE_RATIO_MIN = 4.0
DECODE_RATIO_MAX = 4.0
IMPORT_MS_MAX = 60.0
IMPORT_ROUNDS = 9
ROUNDS = 25


class Case(NamedTuple):
    """A message, and kio's class for it."""

    what: str
    message: Message
    version: int
    entity: type
    calls: int

    def reader(self) -> Callable[[bytes, int], Any]:
        return entity_reader(self.entity)

    def writer(self) -> Callable[[io.BytesIO, Any], None]:
        return entity_writer(self.entity)


def metadata() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for index in range(3)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node, f"broker-{node}", 9092) for node in (1, 2, 3)],
        cluster_id="cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-{n}", topic_id=TOPIC_ID, partitions=partitions)
            for n in range(10)
        ],
    )


def fetch() -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=100, records=bytes(1000))
        for index in range(3)
    ]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    return FetchResponse(responses=[topic] * 3)


def cases() -> list[Case]:
    coordinator = Coordinator(key="group", node_id=3, host="broker-3", port=9092)
    found = FindCoordinatorResponse(coordinators=[coordinator])
    return [
        Case("Metadata v12, 10 topics of 3", metadata(), 12, KioMetadataResponse, 40),
        Case("Fetch v16, 9 partitions of 1 kB", fetch(), 16, KioFetchResponse, 100),
        Case("FindCoordinator v6", found, 6, KioFindCoordinatorResponse, 1000),
    ]


def repeated(work: Callable[[], object], calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            work()

    return run


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], calls: int
) -> tuple[float, float, list[float]]:
    """Return our median time, theirs, and theirs/ours of every round.

    CPU time, not wall time: the work is too short to compare wall times on a shared core.
    """
    taken: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        times = []
        for work in (repeated(ours, calls), repeated(theirs, calls)):
            began = process_time()
            work()
            times.append(process_time() - began)
        taken.append((times[0], times[1]))
    ours_median, theirs_median = (statistics.median(column) for column in zip(*taken, strict=True))
    return ours_median, theirs_median, [theirs / ours for ours, theirs in taken]


def microseconds(seconds: float, calls: int) -> str:
    return f"{seconds / calls * 1e6:.1f} µs"


def encoding(case: Case) -> Row:
    data = encode(case.message, case.version)
    entity = case.reader()(data, 0)[0]
    write = case.writer()

    def theirs() -> bytes:
        out = io.BytesIO()
        write(out, entity)
        return out.getvalue()

    assert theirs() == data
    ours, other, ratios = compare(lambda: encode(case.message, case.version), theirs, case.calls)
    ratio = statistics.median(ratios)
    return Row(
        area="codec",
        what=f"encode {case.what}",
        measured=f"{microseconds(ours, case.calls)} ({spread(ratios)})",
        reference=f"kio's writer, {microseconds(other, case.calls)}",
        ratio=ratio,
        target=f"at least {ENCODE_RATIO_MIN:g}x as fast",
        met=ratio >= ENCODE_RATIO_MIN,
    )


def decoding(case: Case) -> Row:
    data = encode(case.message, case.version)
    read = case.reader()
    struct = type(case.message)
    assert decode(struct, case.version, data) == case.message
    ours, other, ratios = compare(
        lambda: decode(struct, case.version, data), lambda: read(data, 0), case.calls
    )
    slower = [1 / ratio for ratio in ratios]
    ratio = statistics.median(slower)
    return Row(
        area="codec",
        what=f"decode {case.what}",
        measured=f"{microseconds(ours, case.calls)} ({spread(slower)})",
        reference=f"kio's native reader, {microseconds(other, case.calls)}",
        ratio=ratio,
        target=f"at most {DECODE_RATIO_MAX:g}x its time",
        met=ratio <= DECODE_RATIO_MAX,
    )


def import_ms(module: str) -> float:
    """Return the CPU milliseconds of an import in a fresh interpreter, with cached bytecode."""
    program = (
        f"from time import process_time as t; began = t(); import {module}; print(t() - began)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=cache)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _, *taken = (
            subprocess.check_output([sys.executable, "-c", program], env=environment)
            for _ in range(IMPORT_ROUNDS + 1)
        )
    return statistics.median(float(output) for output in taken) * 1000


def importing() -> list[Row]:
    """Measure the package itself, and the module that a connection needs for its first request."""
    kio = import_ms("kio.schema.fetch.v16")
    rows = []
    for module in ("ottla.protocol", "ottla.protocol.frames"):
        taken = import_ms(module)
        rows.append(
            Row(
                area="codec",
                what=f"import {module}",
                measured=f"{taken:.1f} ms",
                reference=f"one schema of kio, {kio:.1f} ms",
                ratio=taken / kio,
                target=f"under {IMPORT_MS_MAX:g} ms",
                met=taken < IMPORT_MS_MAX,
            )
        )
    return rows


def run() -> list[Row]:
    """Measure everything about the codec."""
    rows = [row for case in cases() for row in (encoding(case), decoding(case))]
    return rows + importing()
