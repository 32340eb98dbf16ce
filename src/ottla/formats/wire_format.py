"""Which schema a key or value was written with: both wire formats of Confluent's serializers. Pure.

Before the payload:

    0x00                   the magic byte
    4 bytes, big endian    the id of the schema

In the record header ``__key_schema_id`` or ``__value_schema_id``, with the payload alone as key or
value; the bytes of the header are accepted before the payload, too:

    0x01                   the magic byte
    16 bytes               the guid of the schema

In Protobuf, the path of the message within the schema's file follows in both: zigzag varints, the
count and each index; a single 0 stands for the first message.

`framed_part` puts the header before the payload, so that decoders know one form.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_FRAME_BYTES: Final = 5
GUID_FRAME_BYTES: Final = 17
INDEXES_MAX: Final = 64
"""Levels of nested messages."""
_INDEX_MAX: Final = 2**31 - 1

SchemaRef: TypeAlias = int | str
"""What names a schema: its id, or its guid as the text of a UUID."""

HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""The names of the record headers with a guid, by the part of the record."""


class BadFrame(ValueError):
    """A key or value that does not name its schema."""


def split_frame(data: bytes) -> tuple[SchemaRef, int]:
    """Return what names the schema of a key or value, and where that ends. Raises BadFrame."""
    magic = data[0] if data else -1
    if magic == ID_MAGIC and len(data) >= ID_FRAME_BYTES:
        return int.from_bytes(data[1:ID_FRAME_BYTES], "big"), ID_FRAME_BYTES
    if magic == GUID_MAGIC and len(data) >= GUID_FRAME_BYTES:
        return guid_text(data[1:GUID_FRAME_BYTES]), GUID_FRAME_BYTES
    raise BadFrame(
        "not in the registry's format: it does not begin with a schema id, and the record has no "
        "header with one"
    )


def is_framed(data: bytes) -> bool:
    """Return whether a key or value begins with an id or a guid."""
    magic = data[0] if data else -1
    return (magic == ID_MAGIC and len(data) >= ID_FRAME_BYTES) or (
        magic == GUID_MAGIC and len(data) >= GUID_FRAME_BYTES
    )


def guid_text(raw: bytes) -> str:
    """Return 16 bytes as the text of a UUID."""
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def id_frame(number: int) -> bytes:
    """Return the bytes that name a schema by its id, before a payload."""
    return bytes([ID_MAGIC]) + number.to_bytes(4, "big")


def framed(number: int, payload: bytes) -> bytes:
    """Return a payload after the id of its schema."""
    return id_frame(number) + payload


def guid_frame(guid: str) -> bytes:
    """Return the bytes that name a schema by its guid, for a header. Raises ValueError."""
    raw = bytes.fromhex(guid.replace("-", ""))
    if len(raw) != GUID_FRAME_BYTES - 1:
        raise ValueError(f"not a guid: {guid[:100]!r}")
    return bytes([GUID_MAGIC]) + raw


def framed_part(
    part: str, data: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> bytes | None:
    """Return a key or value that begins with the bytes that name its schema.

    That is ``data`` itself unless the record has the header; None stays None.
    """
    if data is None:
        return None
    name = HEADERS[part]
    for key, value in headers:
        if key == name and value is not None:
            return value + data
    return data


def split_indexes(data: bytes, start: int) -> tuple[list[int], int]:
    """Return the path of a Protobuf message at ``start``, and where it ends. Raises BadFrame."""
    count, position = _varint(data, start)
    if count < 0 or count > INDEXES_MAX:
        raise BadFrame(f"the path of the message has {count} levels")
    indexes = []
    for _ in range(count):
        index, position = _varint(data, position)
        indexes.append(index)
    return indexes or [0], position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while position < len(data) and shift <= 28:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            value = (raw >> 1) ^ -(raw & 1)
            if not 0 <= value <= _INDEX_MAX:
                break
            return value, position
        shift += 7
    raise BadFrame("the path of the message is cut off or malformed")
