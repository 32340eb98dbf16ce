"""Print the comparison of the pipeline alone.

python -m benchmarks.pipeline [--quick]

Rows are printed on stderr as they are measured, and as a table at the end. Spark's connector and
Apache Kafka are downloaded through Maven if they are missing.
"""

import argparse
import sys

from benchmarks.pipeline import FULL, QUICK, run
from benchmarks.report import render


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under four minutes; noisier")
    rows = run(QUICK if parser.parse_args().quick else FULL)
    print(render(rows))
    missed = [row.what for row in rows if not row.met]
    print(f"{len(rows) - len(missed)} of {len(rows)} targets met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
