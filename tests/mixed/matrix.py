"""Run the mixed clusters and write the table of releases in docs/migration.md.

    python -m tests.mixed.matrix [PYTEST ARGUMENTS...]

A row is a release of Apache Kafka, a column a test of `tests/mixed/test_versions.py`. Nothing in
the table is typed by hand. The exit code is that of the tests; the table is written all the same.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as Xml

from tests.mixed.kinds import RELEASES, ROOT, newest
from tests.mixed.levels import level

PAGE = ROOT / "docs" / "migration.md"
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
EMPTY = f"# Migration from Apache Kafka\n\n## Releases\n\n{BEGIN}\n{END}\n"
COLUMNS = {
    "test_cluster_rolls_to_ottla_and_back": "Rolls to Ottla and back under load",
    "test_ottla_broker_serves_under_kafka_controller": "Ottla broker, Kafka controller",
    "test_kafka_broker_serves_under_ottla_controller": "Kafka broker, Ottla controller",
    "test_directory_changes_hands_after_clean_stops_and_kills": "Directories both ways",
}
Case = tuple[str, str, str]
"""Test, release, outcome."""


def cases_of(report: str) -> Iterable[Case]:
    """Yield the cases of a JUnit report that belong to the table."""
    for case in Xml.fromstring(report).iter("testcase"):
        name, _, release = case.attrib["name"].removesuffix("]").partition("[")
        if name in COLUMNS:
            kinds = {child.tag for child in case}
            seconds = float(case.attrib["time"])
            outcome = f"yes, {seconds:.0f} s"
            if kinds & {"failure", "error"}:
                outcome = "**no**"
            elif "skipped" in kinds:
                outcome = "not run"
            yield name, release, outcome


def table(cases: Iterable[Case], levels: dict[str, str]) -> str:
    """Return the table; ``levels`` is the metadata.version that a release was run with."""
    found = {(name, release): outcome for name, release, outcome in cases}
    releases = sorted({release for _, release in found})
    titles = ["Apache Kafka", "metadata.version", *COLUMNS.values()]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for release in releases:
        cells = [found.get((name, release), "not run") for name in COLUMNS]
        lines.append("| " + " | ".join([release, levels[release], *cells]) + " |")
    return "\n".join(lines)


def written(page: str, made: str) -> str:
    """Return a page with its table replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    assert pattern.search(page), f"{PAGE.name} has no {BEGIN}"
    return pattern.sub(lambda _: f"{BEGIN}\n{made}\n{END}", page)


def main() -> int:
    latest = newest()
    if latest not in RELEASES:
        print(f"Apache Kafka {latest} is not in tests/mixed/kinds.py:RELEASES; add it", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "mixed.xml"
        arguments = ["-q", "-m", "jvm", "tests/mixed", f"--junitxml={report}", *sys.argv[1:]]
        command = [sys.executable, "-m", "pytest", *arguments]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        made = table(cases_of(report.read_text()), {each: level(each) for each in RELEASES})
    page = PAGE.read_text() if PAGE.exists() else EMPTY
    PAGE.write_text(written(page, made))
    return code


if __name__ == "__main__":
    sys.exit(main())
