"""Print the comparison with Apache Kafka alone: python -m benchmarks.broker [--quick]."""

import argparse
import sys

from benchmarks.broker import FULL, QUICK, run
from benchmarks.report import render


def main() -> int:
    """Measure and print; return 1 if a target is missed or nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under three minutes; noisier")
    rows = run(QUICK if parser.parse_args().quick else FULL)
    print(render(rows))
    missed = [row.what for row in rows if not row.met]
    print(f"{len(rows) - len(missed)} of {len(rows)} targets met", file=sys.stderr)
    return 1 if missed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
