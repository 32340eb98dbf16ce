"""Measure how both brokers grow, and write docs/growth.md.

python -m benchmarks.growth [--rounds 3] [--quick] [--only partitions groups ...] [--budget SECONDS]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from time import monotonic

from benchmarks.broker.brokers import Missing, exit_on_sigterm, fetch_jars
from benchmarks.broker.programs import program
from benchmarks.figures import machine, today
from benchmarks.growth import dimensions, page, plan, quietness, saved
from ottla.protocol.faults import Fault

ROUNDS = 3
# What a broker or client that does not do its part raises; the next series is measured.
FAILURES = (AssertionError, RuntimeError, OSError, Fault, subprocess.SubprocessError)


def measure(
    figures: saved.Saved, series: plan.Series, folder: Path, effort: dimensions.Effort
) -> bool:
    """Measure and save the points of a series; False, with the reason on stderr, if one failed."""
    points = getattr(dimensions, series.dimension)(series.broker, folder, series.sizes, effort)
    load, others, began = os.getloadavg()[0], quietness.others_seconds(), monotonic()
    try:
        for point in points:
            taken = monotonic() - began
            measured = saved.Round(
                point.figures,
                point.more_than,
                seconds=round(taken, 1),
                load_average=round(load, 2),
                others_percent=round((quietness.others_seconds() - others) / taken * 100, 1),
            )
            saved.add(figures, series.dimension, series.broker, point.size, measured)
            saved.store(figures)
            shown = ", ".join(f"{key} {value:.3g}" for key, value in point.figures.items())
            limits = f" (more than: {', '.join(point.more_than)})" if point.more_than else ""
            say(
                f"  {point.size:,}: {taken:.0f} s, others {measured.others_percent} %:"
                f" {shown}{limits}"
            )
            load, others, began = os.getloadavg()[0], quietness.others_seconds(), monotonic()
    except (*FAILURES, dimensions.TooLong) as error:
        traceback.print_exception(error, limit=-3)
        say(f"growth: {series}: not measured to the end")
        return False
    return True


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def measure_missing(
    figures: saved.Saved, known: saved.Saved, folder: Path, arguments: argparse.Namespace
) -> bool:
    """Measure what is not saved yet, as far as the budget allows; False if a series failed.

    The files of all brokers are left in ``folder``.
    """
    sizes = plan.QUICK_SIZES if arguments.quick else plan.SIZES
    sizes = {name: each for name, each in sizes.items() if name in (arguments.only or sizes)}
    if arguments.size:
        sizes = dict.fromkeys(sizes, tuple(arguments.size))
    effort = dimensions.QUICK if arguments.quick else dimensions.FULL
    count = 1 if arguments.quick else arguments.rounds
    to_do = partial(
        plan.missing, figures, sizes, count, plan.open_files_max(), arguments.broker or plan.BROKERS
    )
    sources = (figures, known)
    began, is_whole, left_out = monotonic(), True, 0
    for series in to_do():
        used, expected = monotonic() - began, plan.seconds_expected(sources, [series])
        rest = plan.seconds_expected(sources, to_do())
        if used + expected > arguments.budget:
            left_out += 1
            say(f"growth: {series}: left out, about {expected:.0f} s do not fit the budget")
            continue
        say(f"growth: {used:.0f} s, about {rest:.0f} s left: {series}: about {expected:.0f} s")
        place = folder / f"{series.round}-{series.dimension}-{series.broker}"
        place.mkdir()
        is_whole = measure(figures, series, place, effort) and is_whole
    say(f"growth: {monotonic() - began:.0f} s, {left_out} series left out")
    return is_whole


def main() -> int:
    """Measure what is missing, then write the page; return 1 if a point could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes in one round; some minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="per point, %(default)s")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(plan.SIZES), metavar="WHAT")
    parser.add_argument("--broker", nargs="*", default=[], choices=plan.BROKERS, metavar="NAME")
    parser.add_argument("--size", nargs="*", type=int, default=[], help="these sizes only")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="begin nothing that ends later, s"
    )
    parser.add_argument(
        "--anew", action="store_true", help="forget earlier rounds of these WHAT and NAME"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    exit_on_sigterm()
    known = saved.load()
    forgotten = (arguments.only or plan.SIZES) if arguments.anew else ()
    figures = saved.without(known, forgotten, arguments.broker or plan.BROKERS)
    if arguments.page:
        page.write(figures, f"{today()}, {machine()}")
        return 0
    try:
        program("requests"), program("rdload")
        fetch_jars()
    except Missing as error:
        say(f"growth: not measured, {error}")
        return 1
    with tempfile.TemporaryDirectory(prefix="ottla-growth-") as folder:
        try:
            is_whole = measure_missing(figures, known, Path(folder), arguments)
        finally:  # also of what was measured before an interrupt
            page.write(figures, f"{today()}, {machine()}")
            say("growth: the page is written; removing the files of all nodes")
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
