"""``make kafka-tests``: run Apache Kafka's own integration tests against nodes of Ottla.

Kafka publishes the jars of its tests. They start brokers through two classes, which are replaced
here (``java/``); everything else of a test is Kafka's own. ``manifest.toml`` says what is expected.

    python -m tests.kafka_suite                       every class that is applicable
    python -m tests.kafka_suite --part api            one part: api, server, tools, connect, storage
    python -m tests.kafka_suite --only 'server.Fetch' classes whose name matches
    python -m tests.kafka_suite --pending             classes that have not run yet
    python -m tests.kafka_suite --uncovered           classes of the jars that have no outcome
    python -m tests.kafka_suite --write-docs          write the manifest's figures to the page

A run that was interrupted goes on where it stopped; ``--anew`` runs everything again.
"""

import argparse
import re
import sys
import time
from collections import Counter

from tests.kafka_suite import classes, harness, manifest, page, reports
from tests.kafka_suite.journal import Journal, state_of
from tests.kafka_suite.manifest import Outcome, Result, TestClass

PAGE = harness.ROOT / "docs" / "compatibility.md"


def main() -> int:
    arguments = _parser().parse_args()
    listed = manifest.load(manifest.MANIFEST.read_text())
    if arguments.write_docs:
        rest = PAGE.read_text().partition(page.HEADING)[0].rstrip()
        PAGE.write_text(f"{rest}\n\n{page.section(listed)}")
        return 0
    try:
        harness.build()
    except harness.CannotRun as reason:
        print(f"skipped: {reason}")
        return 0
    gaps = manifest.uncovered(listed, classes.of_jars(harness.test_jars()))
    print("\n".join(gaps) or "every class of the jars has an outcome")
    if arguments.uncovered:
        return 1 if gaps else 0
    chosen = [
        test_class
        for test_class in listed
        if (bool(test_class.not_run) if arguments.pending else test_class.is_applicable)
        and arguments.part in (None, test_class.part)
        and re.search(arguments.only, test_class.name)
    ]
    return _run(chosen, arguments, len(gaps) - len(manifest.pending(listed)))


def _run(chosen: list[TestClass], arguments: argparse.Namespace, problems: int) -> int:
    """Run the classes that are not done, print the sum, and return the exit code."""
    journal = Journal(harness.BUILD / "journal.json", state_of(harness.ROOT))
    if arguments.anew or arguments.method:
        journal.clear()
    total: Counter[str] = Counter()
    for test_class in chosen:
        counts = journal.counts_of(test_class.name)
        if counts is not None:
            print(f"{test_class.name}: done before", flush=True)
        else:
            counts, number = _play(test_class, arguments.method)
            problems += number
            if not number and not arguments.method:
                journal.record(test_class.name, counts)
        total.update(counts)
    print(", ".join(f"{number} {outcome}" for outcome, number in total.items()))
    print(f"{total[Outcome.PASSED.value]} passed, {problems} failed")
    return 1 if problems or not total[Outcome.PASSED.value] else 0


def _play(test_class: TestClass, method: str | None) -> tuple[dict[str, int], int]:
    """Run a class, print what contradicts the manifest; return its counts, and how much that is."""
    began = time.monotonic()
    results = reports.read(harness.run(test_class.name, method))
    outcomes = [(manifest.judge(test_class, result), result) for result in results]
    counts = Counter(outcome.value for outcome, _ in outcomes)
    text = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    print(f"{test_class.name}: {text or 'NO RESULT'}, {time.monotonic() - began:.0f} s", flush=True)
    for outcome, result in outcomes:
        if outcome.is_error:
            reach = " (reaches into the broker)" if result.reaches_into_broker else ""
            print(f"    {outcome.value}{reach} {result.test}: {result.message}", flush=True)
    contradictions = [] if method else _contradictions(test_class, results)
    for text in contradictions:
        print(f"    {text}", flush=True)
    errors = sum(outcome.is_error for outcome, _ in outcomes)
    return dict(counts), errors + len(contradictions) + (not results)


def _contradictions(test_class: TestClass, results: list[Result]) -> list[str]:
    """Return what the manifest says of the class as a whole and is not so."""
    texts = [
        f"remove the row: {row} passes, or does not exist"
        for row in manifest.unused_rows(test_class, results)
    ]
    passed = sum(result.has_passed for result in results)
    if passed != test_class.passed:
        texts.append(f"{passed} tests passed, the manifest says {test_class.passed}")
    return texts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make kafka-tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", choices=list(manifest.PARTS), help="one part of the classes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="classes that match")
    parser.add_argument("--method", help="one method of the class")
    parser.add_argument("--anew", action="store_true", help="run again what is done already")
    parser.add_argument("--pending", action="store_true", help="run what has no outcome yet")
    parser.add_argument("--uncovered", action="store_true", help="list what the manifest lacks")
    parser.add_argument("--write-docs", action="store_true", help="write docs/compatibility.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
