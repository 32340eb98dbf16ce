"""Break the code on purpose and see whether a test fails.

python -m tests.mutants [--room storage] [--seed n] [--budget seconds]   a generated sample
python -m tests.mutants --curated [--room raft] [--match text]           the curated mutants
"""

import argparse
import sys
import time

from tests.mutants import curated, sample


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", action="append", default=[], help="only this room; repeatable")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--curated", action="store_true")
    parser.add_argument("--match", default="", help="only promises, or places, with this pattern")
    parser.add_argument("--seed", type=int, default=None, help="the same seed: the same mutants")
    parser.add_argument("--budget", type=float, default=600, help="seconds for all rooms")
    options = parser.parse_args()
    if options.curated:
        return curated.run(options.room, options.match, options.jobs)
    seed = int(time.time()) if options.seed is None else options.seed
    return sample.run(options.room, options.match, seed, options.budget, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
