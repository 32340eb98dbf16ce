"""Compare the pipeline with Spark's own Kafka connector on the same records, in one run.

Rows are printed as they are measured, as all of them take minutes.
"""

import sys
from collections.abc import Iterator

from benchmarks.broker.brokers import Missing
from benchmarks.pipeline.comparison import FULL, QUICK, Effort, compare
from benchmarks.pipeline.decoding import decode_rows
from benchmarks.report import Row

__all__ = ["FULL", "QUICK", "compare", "run"]


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; only those without Spark if Java or the connector is missing."""
    rows = []
    for row in _rows(effort):
        result = "" if row.met else ", MISSED"
        reply = (
            f"{row.what}: {row.measured}; {row.reference}; {row.ratio:.2f}, {row.target}{result}"
        )
        print(reply, file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def _rows(effort: Effort) -> Iterator[Row]:
    yield from decode_rows()
    try:
        yield from compare(effort)
    except Missing as error:
        print(f"pipeline: Spark not measured, {error}", file=sys.stderr)
