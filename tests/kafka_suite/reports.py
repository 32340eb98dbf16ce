"""Reads the reports that JUnit's console launcher writes."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.kafka_suite.manifest import Result

MARK = "REACHES-INTO-THE-BROKER"  # StandIn.java prints it
MESSAGE_MAX = 300
OUTPUT = "output.txt"
_EVENT = re.compile(
    r"JUnit Jupiter > \S+ > (?P<method>\w+)\(.*?\)(?P<invocation> > .*)? :: (?P<state>[A-Z]+)"
)


def read(directory: Path) -> list[Result]:
    """Return the results of all reports in a directory; tests that were skipped are left out.

    The launcher writes them at its end. If the class was stopped by its limit, the results of the
    tests until then are read from the output.
    """
    paths = sorted(directory.glob("TEST-*.xml"))
    if not paths:
        return read_feed((directory / OUTPUT).read_text(errors="replace"))
    return [
        _result(case)
        for path in paths
        for case in ElementTree.parse(path).iter("testcase")
        if case.find("skipped") is None
    ]


def read_feed(output: str) -> list[Result]:
    """Return the results that the launcher printed while the tests ran; the last did not end."""
    results: list[Result] = []
    invocations: Counter[str] = Counter()
    running = ""
    lines = iter(output.splitlines())
    for line in lines:
        event = _EVENT.fullmatch(line)
        if event is None:
            continue
        method, is_invocation, state = event["method"], event["invocation"], event["state"]
        if state == "STARTED":
            invocations[method] += 1
            number = f"[{invocations[method]}]" if is_invocation else ""
            running = f"{method}(){number}"
        elif state == "SUCCESSFUL":
            results.append(Result(running, has_passed=True))
            running = ""
        elif state == "FAILED":
            message = next(lines, "").strip()
            results.append(Result(running, has_passed=False, message=message[:MESSAGE_MAX]))
            running = ""
    if running:
        results.append(Result(running, has_passed=False, message="the class was stopped"))
    return results


def _result(case: ElementTree.Element) -> Result:
    failures = [node for node in case if node.tag in ("failure", "error")]
    message = (failures[0].text or "").strip().partition("\n")[0] if failures else ""
    output = "".join(node.text or "" for node in case if node.tag in ("system-out", "system-err"))
    return Result(
        # `method(String, int)[2]`: the types of the parameters say nothing more.
        test=re.sub(r"\([^)]*\)", "()", case.get("name", "")),
        has_passed=not failures,
        message=message[:MESSAGE_MAX],
        reaches_into_broker=MARK in output,
    )
