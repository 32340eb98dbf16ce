"""Records as rows for pages and JSON: text, JSON, or bytes in hexadecimal. Pure.

Values in a registry's wire format are decoded by the caller, see `decoding.py`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from ottla.operations.rows import Row
from ottla.protocol.records.reader import Record
from ottla.protocol.types import TopicPartition

LIST_CHARACTERS_MAX: Final = 2_000
"""What a list shows of a key or value; the page of one record shows more."""
RECORD_CHARACTERS_MAX: Final = 1 << 20
HEX_BYTES_MAX: Final = 4_096
HEADERS_MAX: Final = 100
_CONTROLS_MAX: Final = 0.05
"""The share of control characters from which on text is shown as bytes."""

Decode = Callable[[str, bytes], tuple[str, str] | None]
"""Decodes a part (key or value) in a registry's format: its name, and JSON; None: it is not."""


def part_view(data: bytes | None, characters_max: int, decoded: tuple[str, str] | None) -> Row:
    """Return a key or value: its format, its text, and its size in bytes."""
    if data is None:
        return {"format": "null", "text": "", "size": 0, "is_cut": False}
    if decoded is not None:
        form, text = decoded
    else:
        form, text = _plain(data)
    is_cut = len(text) > characters_max or (form == "hex" and len(data) > HEX_BYTES_MAX)
    return {"format": form, "text": text[:characters_max], "size": len(data), "is_cut": is_cut}


def _plain(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "hex", hex_text(data[:HEX_BYTES_MAX])
    if looks_like_json(text):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return "json", text
    controls = sum(1 for character in text if character < " " and character not in "\n\r\t")
    if controls > len(text) * _CONTROLS_MAX:
        return "hex", hex_text(data[:HEX_BYTES_MAX])
    return "text", text


def looks_like_json(text: str) -> bool:
    """Say whether a text may be an object or a list of JSON."""
    return text.lstrip()[:1] in ("{", "[")


def hex_text(data: bytes) -> str:
    """Return bytes as lines of 16: offset, hexadecimal, and printable characters."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def record_view(
    at: TopicPartition,
    record: Record,
    characters_max: int,
    decode: Decode | None = None,
) -> Row:
    """Return a record as a row. ``decode`` is asked first, for keys and values."""
    key = None if decode is None or record.key is None else decode("key", record.key)
    value = None if decode is None or record.value is None else decode("value", record.value)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": part_view(record.key, characters_max, key),
        "value": part_view(record.value, characters_max, value),
        "headers": [
            {"name": header.key, "value": part_view(header.value, characters_max, None)}
            for header in record.headers[:HEADERS_MAX]
        ],
    }


def csv_cells(row: Row) -> list[str]:
    """Return a row of a list as cells; one that a spreadsheet would run gets a quote in front."""
    key, value = row["key"], row["value"]
    assert isinstance(key, Mapping)
    assert isinstance(value, Mapping)
    headers = json.dumps(row["headers"], ensure_ascii=False)
    cells = [row["partition"], row["offset"], row["timestamp"], key["text"], value["text"], headers]
    return [_harmless(str(cell)) for cell in cells]


def _harmless(cell: str) -> str:
    is_number = cell.removeprefix("-").isdigit()
    return (
        f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else cell
    )
