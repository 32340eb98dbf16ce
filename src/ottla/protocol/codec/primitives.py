"""Functions that generated codecs call: varints, tags, length errors.

Unsigned varint: seven bits per byte, lowest first, the high bit says that more follow. Kafka
reads at most 5 bytes for 32 bits and 10 for 64. Signed ones are zigzag: 0, -1, 1, -2, ...

Compact lengths are a varint of length + 1, zero for null. Tagged fields (KIP-482) are

    count  varint
    count times, tags rising:
        tag   varint
        size  varint
        size bytes
"""

from collections.abc import Callable
from typing import Final, NoReturn

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.types import Buffer

STRING_LENGTH_MAX: Final = 0x7FFF
"""Bytes of a string, in the compact form too: Kafka's own limit on both sides."""

ARRAY_LENGTH_MAX: Final = 1_000_000
"""Elements of one array: Kafka's own limit since 4.4."""

TAGS_MAX: Final = 10_000
"""Tagged fields of one struct: Kafka's own limit since 4.4, far above any schema."""

_UINT32_MAX: Final = 0xFFFFFFFF


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned 32-bit varint and where it ends.

    Raises:
        ProtocolFault: more than 5 bytes, or more than 32 bits.
        IndexError: the buffer ends within it.
    """
    value = shift = 0
    while shift <= 28:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _UINT32_MAX:
                break
            return value, position
        shift += 7
    raise ProtocolFault("varint of more than 32 bits")


def uvarint(value: int) -> bytes:
    """Return an unsigned varint of up to 64 bits; the caller knows that ``value`` is in range."""
    if value < 0x80:
        return value.to_bytes(1)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_long_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return a string's compact length (length + 1) of more than one byte, and where it ends."""
    length, position = read_uvarint(buffer, position)
    if length - 1 > STRING_LENGTH_MAX:
        raise ProtocolFault(f"string of {length - 1} bytes")
    return length, position


def long_string_length(length: int) -> bytes:
    """Return a string's compact length (length + 1) of more than one byte."""
    if length - 1 > STRING_LENGTH_MAX:
        raise ValueError(f"string of {length - 1} bytes")
    return uvarint(length)


def read_tag(buffer: Buffer, position: int, end: int, last: int) -> tuple[int, int, int]:
    """Return a tag, where its value begins and where it must end.

    Raises:
        ProtocolFault: the tag does not rise above ``last``, or its value overruns ``end``.
    """
    tag, position = read_uvarint(buffer, position)
    if tag <= last:
        raise ProtocolFault(f"tag {tag} after tag {last}")
    size, position = read_uvarint(buffer, position)
    stop = position + size
    if stop > end:
        raise ProtocolFault(f"tag {tag} of {size} bytes where {end - position} remain")
    return tag, position, stop


def read_tag_count(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return how many tagged fields follow, which take at least two bytes each."""
    count, position = read_uvarint(buffer, position)
    if count * 2 > end - position or count > TAGS_MAX:
        raise ProtocolFault(f"{count} tagged fields in {end - position} bytes")
    return count, position


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """Skip tagged fields that this version does not know; return where they end."""
    count, position = read_tag_count(buffer, position, end)
    last = -1
    for _ in range(count):
        last, _, position = read_tag(buffer, position, end, last)
    return position


def refuse_length(field: str, length: int, remaining: int) -> NoReturn:
    """Raise for a length that exceeds the rest of the buffer, or null where it is not allowed."""
    if length == -1:
        raise ProtocolFault(f"{field}: null")
    raise ProtocolFault(f"{field}: length {length} where {remaining} bytes remain")


def refuse_count(field: str, count: int, remaining: int) -> NoReturn:
    """Raise for an array with more elements than are allowed, or than the buffer can hold."""
    if count > ARRAY_LENGTH_MAX and count <= remaining:
        raise ProtocolFault(f"{field}: length {count} where {ARRAY_LENGTH_MAX} are allowed")
    refuse_length(field, count, remaining)


def refuse_tag(field: str, position: int, stop: int) -> NoReturn:
    """Raise for a tagged field whose value does not match its size."""
    raise ProtocolFault(f"{field}: tagged field ends at byte {position}, not {stop}")


def require_uuid(value: bytes) -> bytes:
    """Return ``value``, which must be 16 bytes: packing would truncate or pad it silently."""
    if len(value) != 16:
        raise ValueError(f"UUID of {len(value)} bytes")
    return value


Reader = Callable[[Buffer, int, int], tuple[object, int]]
Writer = Callable[[bytearray, object], None]
