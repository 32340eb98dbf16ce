"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names.

A client chooses the expression and the broker evaluates it. RE2 matches in time linear in the name,
but also in the size of the compiled program: a hundred characters (``[a-z]{0,200}[a-y]{0,200}...``)
may take a quarter of a second for one name. So programs are bounded, and the work of a match is
estimated as the size of the program times the characters of the names: above `WORK_MAX` it is done
in steps (`match_steps`). Kafka uses RE2, so the same expressions are valid, up to these bounds;
look-around and back-references are not supported.
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import re2  # type: ignore[import-untyped]

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

# An expression that needs more memory to compile is rejected as invalid.
_MEMORY_MAX: Final = 1 << 19
_COMPILED_MAX: Final = 256
# A message has at most 32 KiB, and so may have the expression.
_SHOWN_LENGTH_MAX: Final = 1000
PROGRAM_MAX: Final = 10_000
"""Instructions of a compiled expression; a hundred different names have a few thousand."""
CLASSES_MAX: Final = 100
"""Classes such as ``\\pL`` in an expression: each has hundreds of ranges to compile."""
WORK_MAX: Final = 5_000_000
"""Instructions times characters in one turn of the event loop: 10 to 20 ms at worst."""


class InvalidRegularExpression(Fault):
    """An expression that cannot be parsed, or is too large."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class MatchingTakesLong(Fault):
    """Expressions that have to be matched in steps before the group can be decided about."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __init__(self, expressions: Sequence[str], names: Collection[str]) -> None:
        super().__init__("The regular expressions of the group are still being matched.")
        self.expressions = expressions
        self.names = names


class Matches(msgspec.Struct):
    """What expressions match among ``names``, found before a decision."""

    names: Collection[str] = ()
    found: dict[str, frozenset[str]] = msgspec.field(default_factory=dict)


@lru_cache(maxsize=_COMPILED_MAX)
def compiled(expression: str) -> Any:  # noqa: ANN401 - the library has no types
    """Return the compiled expression. Raises `re2.error` if it is invalid or too large."""
    if expression.count("\\p") + expression.count("\\P") > CLASSES_MAX:
        raise re2.error("too many character classes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    pattern = re2.compile(expression, options)
    if pattern.programsize > PROGRAM_MAX:
        raise re2.error("pattern too large")
    return pattern


def check_expression(expression: str) -> None:
    """Raise `InvalidRegularExpression` unless the expression can be used."""
    try:
        compiled(expression)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        reason = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
        shown = expression if len(expression) <= _SHOWN_LENGTH_MAX else f"{expression[:50]}..."
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason[:200]}."
        ) from None


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that an expression matches as a whole; none if it is invalid."""
    steps = match_steps(expression, names)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: frozenset[str] = end.value
        return found


def match_steps(expression: str, names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
    """Return what `matching` does, and yield often."""
    try:
        pattern = compiled(expression)
    except re2.error:
        return frozenset()
    found: list[str] = []
    work = 0
    for name in names:
        if pattern.fullmatch(name) is not None:
            found.append(name)
        work += work_of(pattern, name)
        if work >= WORK_MAX // 4:
            work = 0
            yield
    return frozenset(found)


def work_of(pattern: Any, text: str) -> int:  # noqa: ANN401 - as above
    """Return how much work the match of a text may be: instructions times characters."""
    size: int = pattern.programsize
    return size * (len(text) + 1)


def matched(
    expressions: Sequence[str], names: Collection[str], matches: Matches
) -> dict[str, frozenset[str]]:
    """Return what each expression matches, from ``matches`` if it was found before.

    Raises:
        MatchingTakesLong: it was not, and is too much work for one turn.
    """
    known = matches.found if matches.names is names else {}
    left = [expression for expression in expressions if expression not in known]
    if left:
        characters = sum(map(len, names)) + len(names)
        if sum(map(_program_size, left)) * characters > WORK_MAX:
            raise MatchingTakesLong(left, names)
    return {
        expression: known[expression] if expression in known else matching(expression, names)
        for expression in expressions
    }


def _program_size(expression: str) -> int:
    try:
        size: int = compiled(expression).programsize
    except re2.error:
        return 0
    return size
