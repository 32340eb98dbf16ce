"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names.

A client chooses the expression and the broker evaluates it, so it must not take long: RE2 matches
in time linear in the name, whatever the expression, and compiles within `_MEMORY_MAX`. Kafka uses
RE2, so the same expressions are valid; look-around and back-references are not supported.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

# An expression that needs more memory to compile is rejected as invalid.
_MEMORY_MAX: Final = 1 << 20
_COMPILED_MAX: Final = 256


class InvalidRegularExpression(Fault):
    """An expression that cannot be parsed, or is too large."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(expression: str) -> Any:  # noqa: ANN401 - the library has no types
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    return re2.compile(expression, options)


def check_expression(expression: str) -> None:
    """Raise `InvalidRegularExpression` unless the expression can be used."""
    try:
        _compiled(expression)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        reason = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
        said = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}."
        raise InvalidRegularExpression(said) from None


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that an expression matches as a whole; none if it is invalid."""
    try:
        pattern = _compiled(expression)
    except re2.error:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)
