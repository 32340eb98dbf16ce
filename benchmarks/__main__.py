"""Measure areas, print their rows, and write them to docs/benchmarks and docs/benchmarks.md.

python -m benchmarks [area ...] [--quick] [--anew] [--list] [--page]

Without areas, all those are measured that were not measured at this commit. A row is written as
soon as it is known, and an area that fails does not keep the others from being measured.
"""

import argparse
import importlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic

from benchmarks import figures, page
from benchmarks.areas import AREAS, BY_NAME, Area
from benchmarks.broker.brokers import Missing, exit_on_sigterm
from benchmarks.report import Row, render
from benchmarks.warm import FULL, QUICK, Bench, say

Measure = Callable[[Area, Bench], Iterable[Row]]


def rows_of(area: Area, bench: Bench) -> Iterable[Row]:
    """Return the rows of an area, as they are measured."""
    module = importlib.import_module(f"benchmarks.{area.name}")
    rows: Iterable[Row] = module.run(bench) if area.is_compared else module.run()
    return rows


def measured(
    areas: Sequence[Area], bench: Bench, folder: Path | None, measure: Measure = rows_of
) -> tuple[list[Row], list[str]]:
    """Measure areas one after the other; return all rows, and the names of those that failed.

    Rows are kept in ``folder``, or nowhere.
    """
    rows: list[Row] = []
    failed = []
    for area in areas:
        try:
            rows += _measured(area, bench, folder, measure)
        except Missing as missing:
            print(f"skipped: {area.name}: {missing}", flush=True)
        except Exception:  # noqa: BLE001 - whatever it was, the other areas are measured
            traceback.print_exc()
            say(f"{area.name}: failed, the other areas are still measured")
            failed.append(area.name)
            bench.stop()  # what is left of its brokers is in an unknown state
    return rows, failed


def _measured(area: Area, bench: Bench, folder: Path | None, measure: Measure) -> list[Row]:
    run, began = figures.present_run(), monotonic()
    say(f"{area.name}: about {area.minutes} min, load average {run.load}")
    rows = []
    for row in measure(area, bench):
        rows.append(row)
        say(f"{row.what}: {row.measured}; {row.reference}; {row.ratio:.2f}, {row.target}")
        if folder is not None:
            figures.keep(row, run, folder)
    if not rows:
        raise Missing("nothing could be measured")
    if folder is not None:
        figures.complete(area.name, rows, run, folder)
    say(f"{area.name}: {len(rows)} rows in {monotonic() - began:.0f} s")
    return rows


def main() -> int:
    """Run the given areas; fail if one could not be measured, not if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help="all that are missing by default")
    parser.add_argument("--quick", action="store_true", help="cold and short; writes nothing")
    parser.add_argument("--anew", action="store_true", help="measure all, whatever is there")
    parser.add_argument("--list", action="store_true", help="print the areas and their minutes")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.areas) - set(BY_NAME)):
        parser.error(f"no such area: {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    if arguments.list or arguments.page:
        for area in AREAS if arguments.list else ():
            print(f"{area.name:<20}{area.minutes:>4} min  {area.title}")
        if arguments.page:
            page.write()
        return 0
    exit_on_sigterm()
    commit = figures.present_commit()
    areas = [BY_NAME[name] for name in arguments.areas] or [
        area for area in AREAS if arguments.anew or not figures.is_complete(area.name, commit)
    ]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
        bench = Bench(QUICK if arguments.quick else FULL, Path(temporary))
        try:
            rows, failed = measured(areas, bench, None if arguments.quick else figures.FOLDER)
        finally:  # also what was measured before an interrupt
            bench.stop()
            if not arguments.quick:
                page.write()
    print(render(rows))
    missed = [f"{row.area}: {row.what}" for row in rows if not row.met]
    print("\n".join(f"missed: {what}" for what in missed))
    form = " (quick: not comparable, not written)" if arguments.quick else ""
    print(f"{len(rows) - len(missed)} of {len(rows)} targets met{form}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
