"""Regular expressions of JSON Schemas, matched in linear time by RE2 or not at all.

RE2 lacks lookaround and back-references; such a pattern is accepted, and nothing is known about
what it matches.
"""

from functools import lru_cache
from typing import Final

import re2  # type: ignore[import-untyped]

from ottla.schemas.contract import InvalidSchema

# Errors that mean that no engine accepts the pattern, rather than that RE2 lacks a feature.
SYNTAX_ERRORS: Final = (
    "missing )",
    "unexpected )",
    "missing ]",
    "no argument for repetition operator",
    "trailing \\",
)
# Bytes of memory for a compiled pattern; a larger one counts as one that RE2 lacks.
MEMORY_MAX: Final = 1 << 20
PATTERN_CHARACTERS_MAX: Final = 10_000
COMPILED_MAX: Final = 1_000


def check_pattern(pattern: str) -> None:
    """Check the syntax of a pattern as far as RE2 knows it. Raises InvalidSchema."""
    problem = _compiled(pattern)[1]
    if problem.startswith(SYNTAX_ERRORS):
        raise InvalidSchema(f"Invalid JSON schema: invalid pattern {pattern[:100]!r}: {problem}")


def matches(pattern: str, text: str) -> bool | None:
    """Return whether ``pattern`` occurs in ``text``; None if RE2 cannot tell."""
    compiled = _compiled(pattern)[0]
    if compiled is None:
        return None
    return compiled.search(text) is not None


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(pattern: str) -> tuple["re2._Regexp[str] | None", str]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return None, "too long"
    options = re2.Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options), ""
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        return None, reason.decode() if isinstance(reason, bytes) else str(reason)
