"""Print records by kcat's format strings, or as its JSON envelope.

    %t topic     %p partition   %o offset   %T timestamp, milliseconds
    %k key       %s value       %K %S       their lengths, -1 where there is none
    %h headers: name=value,name=value       %% a percent sign
    \\n \\r \\t \\\\ \\0 \\xHH                   characters

A missing part prints as nothing. Keys and values are written byte for byte, except to a terminal,
where control characters are escaped.
"""

import base64
import re
from collections.abc import Callable
from typing import Final

from ottla.cli.terminal.rendering import Plain
from ottla.operations.escaping import escape, readable
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import TopicPartition

Printer = Callable[[TopicPartition, Record], bytes]
Show = Callable[[bytes], bytes]

_TWO_DIGITS: Final = re.compile("[0-9a-fA-F]{2}")
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


class BadFormat(ValueError):
    """A format string contains an unknown sequence."""


def as_is(data: bytes) -> bytes:
    """For files and pipes: write bytes unchanged."""
    return data


def for_terminal(data: bytes) -> bytes:
    """For terminals: escape control characters except line ends and tabs."""
    return escape(readable(data), keep="\n\t").encode()


def compile_format(text: str, show: Show) -> Printer:
    """Return a function that formats a record by a format string. Raises `BadFormat`."""
    parts: list[Printer] = []
    position = 0
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        if character == "%":
            parts.append(_field(following, show))
            position += 2
        elif character == "\\":
            literal, width = _escape_at(text, position)
            parts.append(_literal(literal))
            position += width
        else:
            parts.append(_literal(character.encode()))
            position += 1
    return lambda at, record: b"".join([part(at, record) for part in parts])


def _escape_at(text: str, position: int) -> tuple[bytes, int]:
    kind = text[position + 1 : position + 2]
    if kind == "x":
        digits = text[position + 2 : position + 4]
        if not _TWO_DIGITS.fullmatch(digits):
            raise BadFormat(f"{text!r}: \\x must be followed by two hexadecimal digits")
        return bytes.fromhex(digits), 4
    if kind not in _ESCAPES:
        raise BadFormat(f"{text!r}: \\{kind} is not an escape sequence")
    return _ESCAPES[kind], 2


def _literal(data: bytes) -> Printer:
    return lambda at, record: data


def _field(name: str, show: Show) -> Printer:
    fields: dict[str, Printer] = {
        "%": _literal(b"%"),
        "t": lambda at, record: at.topic.encode(),
        "p": lambda at, record: b"%d" % at.partition,
        "o": lambda at, record: b"%d" % record.offset,
        "T": lambda at, record: b"%d" % record.timestamp,
        "k": lambda at, record: show(record.key or b""),
        "s": lambda at, record: show(record.value or b""),
        "K": lambda at, record: b"%d" % _length(record.key),
        "S": lambda at, record: b"%d" % _length(record.value),
        "h": lambda at, record: show(headers_text(record.headers)),
    }
    if name not in fields:
        known = " ".join(f"%{each}" for each in fields)
        raise BadFormat(f"%{name} is unknown; use one of {known}")
    return fields[name]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def headers_text(headers: tuple[Header, ...]) -> bytes:
    """Return headers as ``name=value,name=value``; without a value, the name alone."""
    return b",".join(
        key.encode() if value is None else key.encode() + b"=" + value for key, value in headers
    )


def envelope(at: TopicPartition, record: Record) -> dict[str, Plain]:
    """Return a record as kcat's JSON; bytes that are not UTF-8 become base64 ``<name>_base64``."""
    found: dict[str, Plain] = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "ts": record.timestamp,
    }
    if record.headers:
        found["headers"] = [
            each
            for key, value in record.headers
            for each in (key, None if value is None else readable(value))
        ]
    found.update(_text_or_base64("key", record.key))
    found.update(_text_or_base64("payload", record.value))
    return found


def _text_or_base64(name: str, data: bytes | None) -> dict[str, Plain]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
