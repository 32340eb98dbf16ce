"""Run the benchmarks, print the table and write it into docs/benchmarks.md.

python -m benchmarks [area ...] [--no-write | --write]
"""

import argparse
import importlib
import os
import platform
import sys
from datetime import UTC, datetime

from benchmarks.report import PAGE, Row, render, write_rows

AREAS = (
    "codec",
    "records",
    "storage",
    "compaction",
    "tiering",
    "metadata",
    "image_changes",
    "fetch",
    "produce",
    "quorum",
    "idle",
    "scrape",
    "broker",
    "latency",
    "tls",
    "acls",
    "coordinators",
    "cluster",
    "failover",
    "two_nodes",
    "pipeline",
)
INTRODUCTION = """# Benchmarks

Ratios within one run: on a shared machine, absolute times are not comparable, ratios are. Each row
is measured in alternation with its reference, in the same process or the same minute, and shows the
median and, where useful, the spread over the rounds.

Rerun all with `make bench`, or one area with `.venv/bin/python -m benchmarks {areas}`.
This page is written by that command.

"""


def machine() -> str:
    """Return one line about the machine."""
    today = datetime.now(UTC).date().isoformat()
    cores = os.cpu_count()
    return f"{today}, {platform.system()}, {cores} cores, Python {platform.python_version()}"


def main() -> int:
    """Run the given areas; fail if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(AREAS)}; all by default")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--write", action="store_true", help="replace rows of the given areas")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.areas) - set(AREAS))
    if unknown:
        parser.error(f"no such area: {', '.join(unknown)}")
    rows: list[Row] = []
    for area in arguments.areas or AREAS:
        print(f"measuring {area} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"benchmarks.{area}").run()
    table = render(rows)
    print(table)
    if not arguments.areas and not arguments.no_write:
        text = INTRODUCTION.format(areas="|".join(AREAS)) + f"{machine()}.\n\n{table}"
        PAGE.write_text(text)
    elif arguments.write:
        write_rows(rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
