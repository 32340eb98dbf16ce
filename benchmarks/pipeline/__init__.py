"""The pipeline against Spark's own Kafka connector on the same records, in one run."""

import sys

from benchmarks.broker.brokers import Missing
from benchmarks.pipeline.comparison import FULL, QUICK, Effort, compare
from benchmarks.pipeline.decoding import decode_rows
from benchmarks.report import Row

__all__ = ["FULL", "QUICK", "compare", "run"]


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; where Java or the connector is missing, only those without Spark."""
    rows = decode_rows()
    try:
        return rows + compare(effort)
    except Missing as error:
        print(f"pipeline: Spark not measured, {error}", file=sys.stderr)
        return rows
