"""Values of configuration keys: conversion between text and typed values, by Kafka's rules.

A list is comma-separated; spaces around items are dropped and repeated items count once. Numbers
are decimal and bounded by their type as in Java. A password prints as ``[hidden]``.
"""

import enum
import math
import re
from typing import TypeAlias, assert_never

HIDDEN = "[hidden]"

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)\Z"
)
# What Java's String.trim removes: all characters up to the space.
_TRIMMED = "".join(map(chr, range(0x21)))


class Type(enum.Enum):
    """The type of a key; the number is the one DescribeConfigs reports."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Password:
    """A secret that neither ``str`` nor ``repr`` shows; `reveal` returns it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reveal(self) -> str:
        """Return the secret itself; do not keep or log it."""
        return self._secret

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._secret == self._secret

    def __hash__(self) -> int:
        return hash((Password, self._secret))

    def __reduce__(self) -> str:
        raise TypeError("a password must not be pickled")


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Password
"""A parsed value. A key that is not set and has no default is ``None``."""


class BadValue(Exception):
    """A text that is not a value of its type; the message says what was expected."""


def parse(kind: Type, text: str) -> Value:
    """Parse ``text`` as a value of ``kind``. Raises `BadValue`."""
    text = text.strip(_TRIMMED)
    match kind:
        case Type.BOOLEAN:
            return _parse_boolean(text)
        case Type.SHORT | Type.INT | Type.LONG:
            return _parse_integer(text, BITS[kind])
        case Type.DOUBLE:
            return _parse_double(text)
        case Type.LIST:
            return parse_list(text)
        case Type.STRING | Type.CLASS:
            return text
        case Type.PASSWORD:
            return Password(text)
        case _:
            assert_never(kind)


def parse_list(text: str) -> tuple[str, ...]:
    """Split at commas, keep empty items, drop repetitions; an empty text has no items."""
    text = text.strip(_TRIMMED)
    if not text:
        return ()
    return tuple(dict.fromkeys(item.strip(_TRIMMED) for item in text.split(",")))


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise BadValue("must be true or false")
    return lowered == "true"


def _parse_integer(text: str, bits: int) -> int:
    # The length bound keeps a very long run of digits from being converted at all.
    if _INTEGER.match(text) and len(text) <= 40:
        number = int(text)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise BadValue(f"must be a {bits}-bit integer")


def _parse_double(text: str) -> float:
    if not _DOUBLE.match(text):
        raise BadValue("must be a number")
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def to_text(value: Value | None) -> str | None:
    """Format a value as Kafka shows it; a password stays hidden."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _double_to_text(value)
        case _:
            return str(value)


def _double_to_text(value: float) -> str:
    """Format as Java's ``Double.toString`` does: digits, and E only far from 1."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # Python uses exponents only far outside this range, so this gives plain digits.
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    point = len(mantissa.lstrip("-").partition(".")[0]) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    return f"{sign}{stripped[0]}.{stripped[1:] or '0'}E{point - 1}"
