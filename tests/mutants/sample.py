"""Run a sample of the generated mutants of each room and report how many survive."""

import multiprocessing
import os
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.mutants.rooms import rooms
from tests.mutants.warm import Order, Result, hide_compiled_modules, run_room


def run(chosen: list[str], match: str, seed: int, budget_s: float, jobs: int) -> int:
    """Share the budget among the rooms. Return 1 if a room could not be run."""
    started = time.monotonic()
    if unknown := set(chosen) - set(rooms()):
        print(f"no such room: {' '.join(sorted(unknown))}; rooms: {' '.join(rooms())}")
        return 2
    chosen = chosen or rooms()
    results = []
    for room in chosen:
        # A process per room: each imports other tests.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            order = Order(room, match, seed, budget_s / len(chosen), jobs)
            results.append(process.submit(in_room, order).result())
        print("\n".join(lines_of(results[-1])), flush=True)
    print("\nroom            possible    run survived    rate  hung uncalled")
    for result in results:
        print(row(result))
    count = sum(result.run for result in results)
    survived = sum(len(result.survivors) for result in results)
    seconds = time.monotonic() - started
    rate = 100 * survived / max(count, 1)
    print(f"{count} mutants, {survived} survived ({rate:.1f} %), seed {seed}, {seconds:.0f} s")
    return 1 if any(result.failing or not result.run for result in results) else 0


def in_room(order: Order) -> Result:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what pytest would print
    hide_compiled_modules()
    return run_room(order)


def lines_of(result: Result) -> Iterator[str]:
    yield f"{result.room}: {result.run} run in {result.seconds:.0f} s"
    for survivor in sorted(result.survivors):
        yield textwrap.indent(f"survived: {survivor}", "  ")
    for failure in result.failing:
        yield f"  FAILED: {failure}"


def row(result: Result) -> str:
    survived = len(result.survivors)
    rate = 100 * survived / max(result.run, 1)
    counts = f"{result.run:6} {survived:8} {rate:5.1f} % {result.hung:5} {result.uncalled:8}"
    return f"{result.room:15} {result.candidates:8} {counts}"
