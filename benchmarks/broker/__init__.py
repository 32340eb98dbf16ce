"""Compare with Apache Kafka in one run: throughput, CPU, small requests, latency, memory."""

import sys

from benchmarks.broker.brokers import Missing
from benchmarks.broker.comparison import FULL, QUICK, Effort, compare
from benchmarks.report import Row

__all__ = ["FULL", "QUICK", "compare", "run"]


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java or a compiler is missing."""
    try:
        return compare(effort)
    except Missing as error:
        print(f"broker: not measured, {error}", file=sys.stderr)
        return []
