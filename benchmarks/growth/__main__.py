"""Measure how both brokers grow, and write docs/growth.md.

python -m benchmarks.growth [--quick] [--only partitions groups ...] [--budget SECONDS]
"""

import argparse
import sys
import traceback
from collections.abc import Iterator
from time import monotonic, perf_counter

from benchmarks.__main__ import machine
from benchmarks.broker.brokers import Missing, exit_on_sigterm, fetch_jars
from benchmarks.broker.programs import program
from benchmarks.growth import dimensions, page, saved

SIZES = {
    "partitions": (10, 100, 1_000, 5_000, 10_000, 20_000),
    "connections": (10, 100, 1_000, 5_000, 10_000),
    "groups": (1, 10, 100, 1_000, 5_000),
    "members": (2, 20, 200, 1_000, 2_000),
    "topics": (1, 10, 100, 1_000, 5_000, 20_000),
    "segments": (10, 100, 1_000, 4_000),
    "fail_over": (10, 100, 1_000),
}
QUICK_SIZES = {
    "partitions": (10, 1_000),
    "connections": (10, 100),
    "groups": (10, 300),
    "members": (2, 50),
    "topics": (10, 1_000),
    "segments": (10, 100),
    "fail_over": (10,),
}


def wanted(names: list[str], sizes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, int, str]]:
    """Yield what to measure: dimension, size and broker, each size on both brokers in turn."""
    for dimension in names or sizes:
        for size in sizes[dimension]:
            for broker in page.BROKERS:
                yield dimension, size, broker


def measure_one(
    figures: saved.Saved, point: tuple[str, int, str], effort: dimensions.Effort
) -> bool:
    """Measure a point and save it; False, with the reason on stderr, if that failed."""
    dimension, size, broker = point
    label = f"growth: {dimension} {size:,} {broker}"
    print(f"{label} ...", file=sys.stderr, flush=True)
    began = perf_counter()
    try:
        found = getattr(dimensions, dimension)(broker, size, effort)
    except (AssertionError, RuntimeError, OSError) as error:
        traceback.print_exception(error, limit=-3)
        print(f"{label}: not measured", file=sys.stderr, flush=True)
        return False
    saved.add(figures, dimension, broker, size, found)
    saved.store(figures)
    shown = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
    print(f"{label}: {perf_counter() - began:.0f} s: {shown}", file=sys.stderr, flush=True)
    return True


def main() -> int:
    """Measure what is missing, then write the page; return 1 if a point could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes; some minutes")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(SIZES), metavar="WHAT")
    parser.add_argument("--size", nargs="*", type=int, default=[], help="these sizes only")
    parser.add_argument("--budget", type=float, default=1e9, help="begin no point after so long")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    exit_on_sigterm()
    figures, failed = saved.load(), 0
    effort = dimensions.QUICK if arguments.quick else dimensions.FULL
    sizes = QUICK_SIZES if arguments.quick else SIZES
    if arguments.size:
        sizes = dict.fromkeys(SIZES, tuple(arguments.size))
    if not arguments.page:
        try:
            program("requests"), program("rdload")
            fetch_jars()
        except Missing as error:
            print(f"growth: not measured, {error}", file=sys.stderr)
            return 1
        end = monotonic() + arguments.budget
        for point in wanted(arguments.only, sizes):
            dimension, size, broker = point
            if not saved.has(figures, dimension, broker, size) and monotonic() < end:
                failed += not measure_one(figures, point, effort)
    page.write(figures, machine())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
