"""Parse records from lines, with or without a key, or from JSON envelopes.

A line is a value, or ``key<separator>value``. An envelope is what `ottla consume -J` prints:
``{"key": ..., "payload": ..., "headers": [name, value, ...], "partition": ..., "ts": ...}``; every
part is optional.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.protocol.records.reader import Header

MESSAGE_BYTES_MAX: Final = 64 << 20
"""No broker accepts a record longer than this."""


class BadInput(ValueError):
    """A line is not a record; the message says which line and why."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send. None: use the option's value."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


class Splitter:
    """Splits a stream into messages at a delimiter, which the last message may lack."""

    def __init__(self, delimiter: bytes, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        assert delimiter
        self._delimiter = delimiter
        self._bytes_max = bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete. Raises `BadInput` if one is too long."""
        searched = max(0, len(self._rest) - len(self._delimiter) + 1)
        self._rest += data
        start = 0
        while (end := self._rest.find(self._delimiter, max(start, searched))) >= 0:
            yield bytes(self._rest[start:end])
            start = end + len(self._delimiter)
        del self._rest[:start]
        if len(self._rest) > self._bytes_max:
            raise BadInput(f"a message of more than {self._bytes_max} bytes")

    def finish(self) -> Iterator[bytes]:
        """Yield the rest as the last message."""
        if self._rest:
            yield bytes(self._rest)
            self._rest.clear()


def parse_line(line: bytes, separator: bytes | None, *, is_empty_null: bool = False) -> Message:
    """Parse a line. A line without the separator has no key. An empty part may mean null."""
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None:
        before, found, after = line.partition(separator)
        if found:
            key, value = before, after
    if is_empty_null:
        key, value = key or None, value or None
    return Message(value, key)


def parse_envelope(line: bytes) -> Message:
    """Parse a JSON envelope. Raises `BadInput`."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {line[:80]!r} ({error})") from error
    if not isinstance(found, dict):
        raise BadInput(f"not a JSON object: {line[:80]!r}")
    return Message(
        value=_bytes(found, "payload"),
        key=_bytes(found, "key"),
        headers=_headers(found.get("headers") or []),
        partition=_integer(found, "partition"),
        timestamp=_integer(found, "ts"),
    )


def _bytes(found: dict[str, object], name: str) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise BadInput(f"{name}_base64: {error}") from error
    value = found.get(name)
    if value is None:
        return None
    # A payload may be a JSON object: kcat prints it so with -s.
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _integer(found: dict[str, object], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput(f"{name} must be a non-negative number, not {value!r}")
    return value


def _headers(items: object) -> tuple[Header, ...]:
    if not isinstance(items, list) or len(items) % 2:
        raise BadInput("headers must be a list: name, value, name, value ...")
    found = []
    for name, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise BadInput("headers must be text")
        found.append(Header(name, None if value is None else value.encode()))
    return tuple(found)


def parse_delimiter(text: str) -> bytes:
    r"""Parse a delimiter, with the escapes ``\n``, ``\t``, ``\0`` and ``\xHH``."""
    try:
        found = text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{text!r}: {error.reason}") from error
    if not found:
        raise BadInput("a delimiter must not be empty")
    return found
