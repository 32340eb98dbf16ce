"""``make kafka-tests``: run Apache Kafka's own integration tests against nodes of Ottla.

Kafka publishes the jars of its tests. They start brokers through two classes, which are replaced
here (``java/``); everything else of a test is Kafka's own. ``manifest.toml`` says what is expected.

    python -m tests.kafka_suite                       every class that is applicable
    python -m tests.kafka_suite --only 'server.Fetch' classes whose name matches
    python -m tests.kafka_suite --discover            classes that start brokers and are not listed
    python -m tests.kafka_suite --write-docs          write the manifest's figures to the page
"""

import argparse
import re
import sys
import time
from collections import Counter

from tests.kafka_suite import classes, harness, manifest, reports
from tests.kafka_suite.manifest import Outcome, Result, TestClass

PAGE = harness.ROOT / "docs" / "compatibility.md"


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.write_docs:
        rest = PAGE.read_text().partition(manifest.HEADING)[0].rstrip()
        listed = manifest.load(manifest.MANIFEST.read_text())
        PAGE.write_text(f"{rest}\n\n{manifest.page_section(listed)}")
        return 0
    try:
        harness.build()
    except harness.CannotRun as reason:
        print(f"skipped: {reason}")
        return 0
    listed = manifest.load(manifest.MANIFEST.read_text())
    if arguments.discover:
        names = {test_class.name for test_class in listed}
        print("\n".join(name for name in classes.of_jars(harness.test_jars()) if name not in names))
        return 0
    chosen = [c for c in listed if c.is_applicable and re.search(arguments.only, c.name)]
    total: Counter[Outcome] = Counter()
    problems = sum(_play(test_class, arguments.method, total) for test_class in chosen)
    print(", ".join(f"{number} {outcome.value}" for outcome, number in total.items()))
    print(f"{total[Outcome.PASSED]} passed, {problems} failed")
    return 1 if problems or not total[Outcome.PASSED] else 0


def _play(test_class: TestClass, method: str | None, total: Counter[Outcome]) -> int:
    """Run a class, print what contradicts the manifest, and return how much that is."""
    began = time.monotonic()
    results = reports.read(harness.run(test_class.name, method))
    outcomes = [(manifest.judge(test_class, result), result) for result in results]
    counts = Counter(outcome for outcome, _ in outcomes)
    total.update(counts)
    said = ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items())
    print(f"{test_class.name}: {said or 'NO RESULT'}, {time.monotonic() - began:.0f} s", flush=True)
    for outcome, result in outcomes:
        if outcome.is_error:
            reach = " (reaches into the broker)" if result.reaches_into_broker else ""
            print(f"    {outcome.value}{reach} {result.test}: {result.message}", flush=True)
    contradictions = [] if method else _contradictions(test_class, results)
    for text in contradictions:
        print(f"    {text}", flush=True)
    return sum(outcome.is_error for outcome, _ in outcomes) + len(contradictions) + (not results)


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
    parser.add_argument("--only", default="", metavar="PATTERN", help="classes that match")
    parser.add_argument("--method", help="one method of the class")
    parser.add_argument("--discover", action="store_true", help="list what the manifest lacks")
    parser.add_argument("--write-docs", action="store_true", help="write docs/compatibility.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
