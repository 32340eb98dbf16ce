"""Compare clusters of three nodes under Apache Kafka's own Java client, with three replicas."""

from collections.abc import Iterator

from benchmarks.java import codec_rows, java_client
from benchmarks.report import REPORTED, Row
from benchmarks.warm import Bench

AREA = "java_replicated"
CODECS = ("none", "lz4", "zstd")
RECORDS = 400_000
"""Of a turn."""


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows. Raises Missing."""
    with java_client(bench.folder) as client:
        yield from codec_rows(AREA, bench.clusters(), client, CODECS, RECORDS, REPORTED)
