"""Print the comparison of the pipeline alone.

python -m benchmarks.pipeline [--quick] [--write] [part ...]

Rows are printed on stderr as they are measured, and as a table at the end; --write also puts them
into docs/benchmarks.md, in place of older ones. Spark's connector and Apache Kafka are downloaded
through Maven if they are missing.
"""

import argparse
import sys

from benchmarks import figures, page
from benchmarks.pipeline import FULL, PARTS, QUICK, run
from benchmarks.report import render


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="minutes for a part; noisier")
    parser.add_argument(
        "--write", action="store_true", help=f"write the rows into {page.PAGE.name}"
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}")
    if given.quick and given.write:
        parser.error("rows of the quick form are not written")
    rows, present = [], figures.present_run()
    for row in run(QUICK if given.quick else FULL, given.parts):
        rows.append(row)
        if given.write:  # now: a part that fails later loses nothing
            figures.keep(row, present)
            page.write()
    print(render(rows))
    missed = [row.what for row in rows if not row.met]
    print(f"{len(rows) - len(missed)} of {len(rows)} targets met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
