"""Counts, figures and the result of a command, read from its output. Pure."""

import re
from collections import Counter
from collections.abc import Iterable

from tools.evidence.proof import FAILED, PASSED, SKIPPED

ENDING_LINES = 12
_PYTEST_END = re.compile(r"^=* ?.*\b(?:passed|failed|errors?|skipped|no tests ran)\b.* in [\d.]+s")
_PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error|xfailed|xpassed)s?\b")
_SKIPPED_WHOLE = re.compile(r"^skipped: ")


def counts_of(lines: Iterable[str]) -> dict[str, int]:
    """Return the sums of the closing lines of pytest: passed, failed, skipped, error."""
    total: Counter[str] = Counter()
    for line in lines:
        if _PYTEST_END.search(line):
            for number, word in _PYTEST_COUNT.findall(line):
                total[word] += int(number)
    return dict(total)


def figures_of(lines: Iterable[str], patterns: Iterable[str]) -> dict[str, str]:
    """Return what the named groups of the patterns hold in their last match."""
    compiled = [re.compile(pattern) for pattern in patterns]
    figures: dict[str, str] = {}
    for line in lines:
        for pattern in compiled:
            if match := pattern.search(line):
                figures |= {key: text for key, text in match.groupdict().items() if text}
    return figures


def result_of(exit_code: int, lines: list[str], counts: dict[str, int]) -> str:
    """Return whether the run proves its promise.

    A command that was skipped as a whole, or whose tests were all skipped, proves nothing.
    """
    if exit_code:
        return FAILED
    has_only_skips = bool(counts) and not counts.get("passed")
    if has_only_skips or any(_SKIPPED_WHOLE.search(line) for line in lines):
        return SKIPPED
    return PASSED


def ending_of(lines: list[str]) -> tuple[str, ...]:
    """Return the last lines that are not empty, each at most 200 characters."""
    return tuple(line.strip()[:200] for line in lines if line.strip())[-ENDING_LINES:]
