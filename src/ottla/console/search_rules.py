"""The conditions of a search: a total language, checked before the search begins. Pure.

    text            a key, value or header value contains these characters
    key             the key is equal to this text
    header          name=value: a header of this name has this value; name: it exists
    json            path operator value: $.user.id >= 5, user.name == "lars", tags[0] contains x

All conditions that are given must hold. The operators are == != < <= > >= and contains. A
comparison of different kinds, or of a part that does not exist, is false.
"""

import json
import operator as operators
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.protocol.records.reader import Record

CONDITION_LENGTH_MAX: Final = 2_000
PATH_PARTS_MAX: Final = 20
_COMPARISON: Final = re.compile(r"\s*(\S+?)\s*(==|!=|<=|>=|<|>|\bcontains\b)\s*(.*)\Z", re.S)
_ORDERS: Final = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d{1,9})\]")


class BadCondition(ValueError):
    """A condition that cannot be used; the message says why."""


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of a part of a JSON value."""

    path: tuple[str | int, ...]
    operator: str
    value: Any


class Query(msgspec.Struct, frozen=True):
    """The conditions of a search; None is no condition."""

    text: str | None = None
    key: str | None = None
    header: tuple[str, str | None] | None = None
    comparison: Comparison | None = None


def parse_query(text: str, key: str, header: str, comparison: str) -> Query:
    """Return the conditions; empty texts are none. Raises `BadCondition`."""
    if not any((text, key, header, comparison)):
        raise BadCondition("give a text, a key, a header or a JSON comparison")
    if max(map(len, (text, key, header, comparison))) > CONDITION_LENGTH_MAX:
        raise BadCondition(f"a condition has at most {CONDITION_LENGTH_MAX} characters")
    name, separator, value = header.partition("=")
    return Query(
        text or None,
        key or None,
        (name.strip(), value.strip() if separator else None) if header else None,
        parse_comparison(comparison) if comparison else None,
    )


def parse_comparison(text: str) -> Comparison:
    """Parse ``path operator value``; the value is JSON, or else text. Raises `BadCondition`."""
    parts = _COMPARISON.match(text)
    if parts is None:
        raise BadCondition(f"{text!r} must be: path operator value, as in $.user.id >= 5")
    path, operator, value = parts.groups()
    try:
        literal = json.loads(value)
    except (ValueError, RecursionError):
        literal = value.strip()
    return Comparison(parse_path(path), operator, literal)


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse ``$.a.b[0]`` or ``a.b[0]``. Raises `BadCondition`."""
    rest = text.removeprefix("$").removeprefix(".")
    path: list[str | int] = []
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or len(path) >= PATH_PARTS_MAX:
            raise BadCondition(f"{text!r} must be a path such as $.user.tags[0]")
        path.append(part[1] if part[1] is not None else int(part[2]))
        position = part.end()
        if rest[position : position + 1] == ".":
            position += 1
    return tuple(path)


def matcher_of(
    query: Query, decode: Callable[[bytes], str | None] | None = None
) -> Callable[[Record], bool]:
    """Return whether a record fulfils the conditions. ``decode`` returns JSON of some values."""
    tests: list[Callable[[Record], bool]] = []
    if query.key is not None:
        key = query.key.encode("utf-8", "surrogatepass")
        tests.append(lambda record: record.key == key)
    if query.header is not None:
        tests.append(_header_test(*query.header))
    if query.text is not None:
        tests.append(_text_test(query.text.encode("utf-8", "surrogatepass"), query.text, decode))
    if query.comparison is not None:
        comparison = query.comparison
        tests.append(lambda record: _is_true(comparison, _json_of(record.value, decode)))
    return lambda record: all(test(record) for test in tests)


def _header_test(name: str, value: str | None) -> Callable[[Record], bool]:
    data = None if value is None else value.encode("utf-8", "surrogatepass")
    return lambda record: any(
        header.key == name and (data is None or header.value == data) for header in record.headers
    )


def _text_test(
    data: bytes, text: str, decode: Callable[[bytes], str | None] | None
) -> Callable[[Record], bool]:
    def contains(record: Record) -> bool:
        parts = (record.key, record.value, *(header.value for header in record.headers))
        if any(part is not None and data in part for part in parts):
            return True
        if decode is None or not record.value:
            return False
        decoded = decode(record.value)
        return decoded is not None and text in decoded

    return contains


def _json_of(value: bytes | None, decode: Callable[[bytes], str | None] | None) -> Any:  # noqa: ANN401
    if value is None:
        return None
    text = None if decode is None else decode(value)
    try:
        return json.loads(value if text is None else text)
    except (ValueError, RecursionError):
        return None


def _is_true(comparison: Comparison, value: Any) -> bool:  # noqa: ANN401 - JSON
    for part in comparison.path:
        match value:
            case dict() if part in value:
                value = value[part]
            case list() if isinstance(part, int) and part < len(value):
                value = value[part]
            case _:
                return False
    return _compare(comparison.operator, value, comparison.value)


def _compare(operator: str, left: Any, right: Any) -> bool:  # noqa: ANN401 - JSON
    if operator == "contains":
        if isinstance(left, str):
            return str(right) in left
        return isinstance(left, list | dict) and isinstance(right, str | int) and right in left
    if operator in ("==", "!="):
        is_equal = left == right and isinstance(left, bool) == isinstance(right, bool)
        return is_equal == (operator == "==")
    are_numbers = all(isinstance(side, int | float) for side in (left, right))
    are_texts = all(isinstance(side, str) for side in (left, right))
    return (are_numbers or are_texts) and bool(_ORDERS[operator](left, right))
