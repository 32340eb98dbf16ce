"""Sends the same requests to Apache Kafka and to a node of ours, and compares the answers.

    python -m tests.differential [--only FAMILY ...] [--match TEXT] [--rights NAME]

Exit code 1 when an answer differs and no row of ``deliberate.toml`` allows it, or when a row
allows nothing any more.
"""

import argparse
import re
import signal
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.differential import page, rights
from tests.differential.catalogue import Family, families
from tests.differential.deliberate import load
from tests.differential.peers import Missing, both, stop
from tests.differential.runner import Finding, Result, Runner

SLOW_SHOWN = 40


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="families to play")
    parser.add_argument("--match", nargs="+", default=[""], help="parts of names of cases to play")
    parser.add_argument("--list", action="store_true", help="print the families and exit")
    parser.add_argument("--keep", type=Path, help="directory to leave logs and data in")
    parser.add_argument("--write-docs", action="store_true", help="write docs/differences.md only")
    parser.add_argument(
        "--rights",
        choices=rights.NAMES,
        default=rights.ALL,
        help="what the user of the requests may do; other than all turns an authorizer on",
    )
    options = parser.parse_args()
    chosen = [f for f in families() if not options.only or f.name in options.only]
    unknown = set(options.only) - {family.name for family in chosen}
    if unknown:
        parser.error(f"unknown families: {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(family.name for family in chosen))
        return 0
    if options.write_docs:
        page.PAGE.write_text(page.render(load()))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # report what was found so far
    with tempfile.TemporaryDirectory(prefix="differential-") as temporary:
        try:
            directory = options.keep or Path(temporary)
            return _play(chosen, options.match, directory, user=options.rights)
        except Missing as error:
            print(f"skipped: {error}")
            return 0


def _play(chosen: list[Family], match: list[str], directory: Path, *, user: str) -> int:
    """Play each family on peers of its own, so that none meets what another left behind."""
    is_limited = user != rights.ALL
    runner = Runner(load(), user)
    supply = ThreadPoolExecutor(1)  # starts the next pair while one is in use
    with ExitStack() as stack:
        pairs = [
            supply.submit(stack.enter_context, both(directory / family.name, is_limited=is_limited))
            for family in chosen[:1]
        ]
        for number, family in enumerate(chosen):
            kafka, ottla = pairs[number].result()
            for following in chosen[number + 1 : number + 2]:
                context = both(directory / following.name, is_limited=is_limited)
                pairs.append(supply.submit(stack.enter_context, context))
            runner.use(kafka, ottla)
            try:
                _play_family(runner, family, match)
            except (KeyboardInterrupt, RuntimeError) as error:
                print(f"stopped in {family.name}: {error or 'interrupted'}")
                runner.result.broken.append(family.name)
                break
            finally:
                stop(kafka, ottla)
        supply.shutdown()
    for took, name in sorted(runner.slow, reverse=True)[:SLOW_SHOWN]:
        print(f"slow: {took:.1f} s {name}")
    played = {family.name for family in chosen} - set(runner.result.broken)
    names = played if match == [""] and not runner.result.broken else set()
    expected = [row for row in runner.rows if row.rights == user]
    return _report(runner.result, runner.result.stale(expected, names))


def _play_family(runner: Runner, family: Family, match: list[str]) -> None:
    began, before = time.monotonic(), runner.result.requests
    found = len(runner.result.findings)
    cases = family.cases(runner.ranges())
    chosen = [case for case in cases if any(text in case.name for text in match)]
    runner.run(family, chosen)
    print(
        f"{family.name}: {len(chosen)} cases, {runner.result.requests - before} requests, "
        f"{len(runner.result.findings) - found} differences, {time.monotonic() - began:.1f} s",
        flush=True,
    )


def _report(result: Result, stale: list) -> int:
    for row, times in result.allowed.items():
        print(f"allowed {times} times: {row.request}, {row.situation}")
    for heading, lines in grouped(result.findings).items():
        print(f"\n{heading}")
        print("\n".join(f"    {line}" for line in lines[:12]))
        if len(lines) > 12:
            print(f"    and {len(lines) - 12} more")
    for row in stale:
        print(f"\nno longer different, remove the row: {row.request}, {row.situation}")
    print(
        f"\n{result.cases} cases, {result.requests} requests compared in {result.fields} fields; "
        f"{len(result.findings)} differences, {sum(result.allowed.values())} deliberate by "
        f"{len(result.allowed)} rows, {len(stale)} rows without use"
    )
    return 1 if result.findings or stale or result.broken or not result.fields else 0


def grouped(findings: list[Finding]) -> dict[str, list[str]]:
    """Group differences of a field with the same values; return heading -> cases.

    Fields that differ because an error code does are left out.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for found in findings:
        if found.is_consequence:
            continue
        gap = found.difference
        path = re.sub(r"\[[^]]*\]", "[]", gap.path) or "outcome"
        heading = f"{found.step.api} {path}: Kafka {gap.kafka}, Ottla {gap.ottla}"
        groups[heading].append(f"{found.case} {gap.path}")
    return dict(sorted(groups.items()))


if __name__ == "__main__":
    sys.exit(main())
