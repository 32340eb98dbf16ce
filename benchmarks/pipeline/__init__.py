"""Compare the pipeline with Spark's own Kafka connector and others on the same records, in one run.

It has parts, each of which takes a few minutes and starts what it needs. Rows are printed as they
are measured.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter

from benchmarks.broker.brokers import Missing
from benchmarks.pipeline.comparison import FULL, QUICK, Effort, compare
from benchmarks.pipeline.decoding import decode_rows
from benchmarks.pipeline.latency import latency_rows
from benchmarks.pipeline.queries import query_rows
from benchmarks.pipeline.scaling import scaling_rows
from benchmarks.pipeline.tables import table_rows
from benchmarks.report import Row

__all__ = ["FULL", "PARTS", "QUICK", "compare", "run"]

PARTS: dict[str, Callable[[Effort], Iterator[Row]]] = {
    "decode": lambda _: decode_rows(),
    "scans": compare,
    "scaling": scaling_rows,
    "parquet": partial(table_rows, "parquet"),
    "delta": partial(table_rows, "delta"),
    "iceberg": partial(table_rows, "iceberg"),
    "latency": latency_rows,
    "sql": query_rows,
}


def run(effort: Effort = FULL, parts: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of some parts, or of all; parts whose tools are missing are left out."""
    for part in parts or PARTS:
        began = perf_counter()
        print(f"pipeline: measuring {part} ...", file=sys.stderr, flush=True)
        try:
            for row in PARTS[part](effort):
                result = "" if row.met else ", MISSED"
                reply = f"{row.what}: {row.measured}; {row.reference}; {row.ratio:.2f}"
                print(f"{reply}, {row.target}{result}", file=sys.stderr, flush=True)
                yield row
        except Missing as error:
            print(f"pipeline: {part} not measured, {error}", file=sys.stderr)
        took = perf_counter() - began
        print(f"pipeline: {part} took {took:.0f} s", file=sys.stderr, flush=True)
