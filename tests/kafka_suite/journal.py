"""Remembers which classes gave the expected results at which state of the sources.

A run takes an hour. One that was interrupted goes on where it stopped, as long as neither the
product nor the suite has changed since.
"""

import hashlib
import json
import subprocess
from pathlib import Path

SOURCES = ("src", "tests/kafka_suite")


def state_of(root: Path) -> str:
    """Return a hash of the sources as they are, committed or not."""
    content = hashlib.sha256()
    for command in (
        ("ls-files", "-s", "--", *SOURCES),
        ("diff", "--", *SOURCES),
        ("ls-files", "--others", "--exclude-standard", "--", *SOURCES),
    ):
        done = subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
        content.update(done.stdout)
    return content.hexdigest()


class Journal:
    """The classes that gave the expected results, each with its line of counts."""

    def __init__(self, path: Path, state: str) -> None:
        self._path = path
        self._state = state
        self._counts: dict[str, dict[str, int]] = {}
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["state"] == state:
                self._counts = kept["counts"]

    def counts_of(self, test_class: str) -> dict[str, int] | None:
        """Return the counts of a class that gave the expected results at this state."""
        return self._counts.get(test_class)

    def record(self, test_class: str, counts: dict[str, int]) -> None:
        """Keep the counts of a class that gave the expected results."""
        self._counts[test_class] = counts
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"state": self._state, "counts": self._counts}, indent=1))

    def clear(self) -> None:
        """Forget everything."""
        self._counts = {}
