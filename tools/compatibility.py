"""Write docs/compatibility.md from a run of tests/clients: what passed, and the versions used.

python -m tools.compatibility [--no-run DIR]

Runs the scenarios against a node behind a tap. The page says what passed, and which version of
which API each client really spoke; nothing on it is typed by hand. Exit code 1 when a scenario
failed; the page is written all the same.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import request_class

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
SCENARIOS = "tests/clients/test_clients.py"
JUNIT = "scenarios.xml"
VERSIONS = "versions-*.json"
RESULTS = "OTTLA_COMPATIBILITY_DIR"
MARKS = {"passed": "yes", "failed": "**no**", "skipped": "not run"}
INTRODUCTION = """# Compatibility

Written by `make conformance` from a run of `tests/clients`: one set of scenarios for every client,
against one node, with a tap on the wire. The same scenarios pass against Apache Kafka 4.2
(`OTTLA_CLIENTS_BOOTSTRAP=host:port`). Where our answers differ from Kafka's on purpose is in
[differences.md](differences.md).

"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one scenario with one client, in one of its variants."""

    scenario: str
    client: str
    form: str
    result: str


def outcomes_of(report: str) -> list[Outcome]:
    """Read a JUnit report. A test is named ``test_scenario[client-form]``."""
    found = []
    for case in Xml.fromstring(report).iter("testcase"):  # noqa: S314 - our own report
        name, _, inside = case.attrib["name"].removesuffix("]").partition("[")
        client, form = split_parameters(inside)
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        result = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        scenario = name.removeprefix("test_").replace("_", " ")
        found.append(Outcome(scenario, client, form, result))
    return found


FORM = re.compile(
    r"^(?:(?P<before>-?\d+)-)?(?P<client>.+?)(?:-(?P<after>none|gzip|snappy|lz4|zstd))?$"
)
ACKS = {"-1": "acks=all", "0": "acks=0", "1": "acks=1"}


def split_parameters(text: str) -> tuple[str, str]:
    """Return the client and the variant (a codec, a level of acks) of a parametrised test."""
    found = FORM.match(text)
    if found is None:
        return text, ""
    before = found["before"]
    return found["client"], found["after"] or ("" if before is None else ACKS.get(before, before))


def scenario_table(outcomes: Sequence[Outcome]) -> str:
    """Return the results: a row per scenario, a column per client."""
    clients = ordered(each.client for each in outcomes)
    results: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for each in outcomes:
        results[each.scenario][each.client].append(each)
    lines = [_row(["Scenario", *clients]), _row(["---"] + [":--:"] * len(clients))]
    for scenario, by_client in results.items():
        cells = [_cell(by_client.get(client, [])) for client in clients]
        lines.append(_row([scenario, *cells]))
    return "\n".join(lines) + "\n"


def _cell(outcomes: Sequence[Outcome]) -> str:
    """Return one word if all variants agree, else the variants that did not pass."""
    if not outcomes:
        return ""
    results = {each.result for each in outcomes}
    if len(results) == 1:
        forms = ", ".join(each.form for each in outcomes if each.form)
        (result,) = results
        return f"{MARKS[result]} ({forms})" if forms else MARKS[result]
    return ", ".join(f"{each.form} {MARKS[each.result]}" for each in outcomes)


def version_table(rows: Iterable[Sequence[object]], clients: Sequence[str]) -> str:
    """Return the versions that clients used: a row per API, a column per client."""
    spoken: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for client, key, version, _ in rows:
        spoken[int(str(key))][str(client)].add(int(str(version)))
    lines = [
        _row(["API", "key", "Versions of Kafka 4.2", *clients]),
        _row(["---", "--:", "---"] + [":--:"] * len(clients)),
    ]
    for key in sorted(spoken):
        name, offered = _api(key)
        cells = [ranges(spoken[key].get(client, set())) for client in clients]
        lines.append(_row([name, str(key), offered, *cells]))
    return "\n".join(lines) + "\n"


def _api(key: int) -> tuple[str, str]:
    try:
        found = ApiKey(key)
    except ValueError:
        return "?", ""
    versions = request_class(found).SCHEMA.versions
    return found.title, "" if versions is None else f"{versions[0]}-{versions[1]}"


def ranges(versions: Iterable[int]) -> str:
    """Return versions as ranges: ``3-5, 7``."""
    found: list[list[int]] = []
    for version in sorted(versions):
        if found and version == found[-1][1] + 1:
            found[-1][1] = version
        else:
            found.append([version, version])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def ordered(names: Iterable[str]) -> list[str]:
    """Return the distinct names in the order of their first occurrence."""
    return list(dict.fromkeys(names))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(outcomes: Sequence[Outcome], rows: Sequence[Sequence[object]], about: str) -> str:
    """Return the whole page."""
    clients = ordered(each.client for each in outcomes)
    counts: Mapping[str, int] = {
        result: sum(each.result == result for each in outcomes) for result in MARKS
    }
    return (
        INTRODUCTION
        + f"{about}\n\n{counts['passed']} passed, {counts['failed']} failed, "
        + f"{counts['skipped']} not run for want of something.\n\n"
        + "## Scenarios\n\nAn empty cell: the client has no such function.\n\n"
        + scenario_table(outcomes)
        + "\n## Versions spoken\n\n"
        + "What each client chose from the versions that ApiVersions offered it.\n\n"
        + version_table(rows, clients)
    )


def kafka_tests(text: str) -> str:
    """Return the section of the page that ``python -m tests.kafka_suite --write-docs`` writes."""
    _, heading, section = text.partition("\n## Apache Kafka's own tests\n")
    return heading + section


def run(directory: Path) -> None:
    """Run the scenarios; write their report and the recorded versions to a directory."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", SCENARIOS]
    subprocess.run(  # noqa: S603 - our own tests
        [*command, f"--junitxml={directory / JUNIT}"],
        cwd=ROOT,
        env={**os.environ, RESULTS: str(directory)},
        check=False,
    )


def versions_of_clients() -> str:
    """Return the installed releases of the Python clients."""
    from importlib.metadata import version

    names = ("confluent-kafka", "aiokafka", "kafka-python")
    return "Python clients: " + ", ".join(f"{name} {version(name)}" for name in names) + "."


def main() -> int:
    """Run the scenarios, or read the results of an earlier run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--no-run", metavar="DIR", type=Path, help="read the results in DIR instead of running"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory: Path = arguments.no_run or Path(temporary)
        if arguments.no_run is None:
            run(directory)
        outcomes = outcomes_of((directory / JUNIT).read_text())
        rows = [
            row for path in sorted(directory.glob(VERSIONS)) for row in json.loads(path.read_text())
        ]
    kept = kafka_tests(PAGE.read_text())
    PAGE.write_text(page(outcomes, rows, versions_of_clients()) + kept)
    return 1 if any(each.result == "failed" for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
