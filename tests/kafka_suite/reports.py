"""Reads the reports that JUnit's console launcher writes."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.kafka_suite.manifest import Result

MARK = "REACHES-INTO-THE-BROKER"  # StandIn.java prints it
MESSAGE_MAX = 300


def read(directory: Path) -> list[Result]:
    """Return the results of all reports in a directory; tests that were skipped are left out."""
    return [
        _result(case)
        for path in sorted(directory.glob("TEST-*.xml"))
        for case in ElementTree.parse(path).iter("testcase")
        if case.find("skipped") is None
    ]


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
