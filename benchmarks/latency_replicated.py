"""Compare the latency from a producer to a consumer of clusters of three nodes, acks=all."""

from collections.abc import Iterator

from benchmarks.broker.programs import program
from benchmarks.latency import Kind, compared
from benchmarks.report import Row
from benchmarks.warm import Bench

AREA = "latency_replicated"


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows. Raises Missing."""
    program("rdload")
    yield from compared(AREA, bench.clusters(), (Kind("all", "three replicas, acks=all"),))
