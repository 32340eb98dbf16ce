"""The prefix of an internal record: its type and version.

Metadata log and ``__remote_log_metadata``, one value, no key:

    uvarint  frame version, 1
    uvarint  record type
    uvarint  record version
    ...      the record in that version

Topics of coordinators, a key and a value, which is null for a tombstone:

    key    int16 record type     then the key, version 0
    value  int16 value version   then the value in that version

Records read from disk may be damaged or of a newer version: that raises a `ProtocolFault`, or an
`UnknownRecordType` if the type is unknown.
"""

from collections.abc import Mapping

import msgspec

from ottla.protocol.codec import decode, decode_prefix, encode, encode_into
from ottla.protocol.codec.primitives import read_uvarint, uvarint
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer

FRAME_VERSION = 1
TYPE_MAX = 2**15 - 1
# Keys of coordinator records have never had another version.
KEY_VERSION = 0


class UnknownRecordType(ProtocolFault):
    """A record of an unknown type, most likely written by a newer version.

    A coordinator that loads its topic may skip it; a record of the metadata log may not be skipped.
    """

    def __init__(self, record_type: int) -> None:
        super().__init__(f"record type {record_type} is not known")
        self.record_type = record_type


class Versioned(msgspec.Struct, frozen=True):
    """A record and its version."""

    message: Message
    version: int


def encode_framed(record: Versioned) -> bytes:
    """Write a record of the metadata log or of remote log metadata."""
    out = bytearray()
    out += uvarint(FRAME_VERSION)
    out += uvarint(_type_of(record.message))
    out += uvarint(record.version)
    encode_into(out, record.message, record.version)
    return bytes(out)


def decode_framed(types: Mapping[int, type[Message]], buffer: Buffer) -> Versioned:
    """Read a record that fills ``buffer``. Raises `ProtocolFault`."""
    frame, position = _read_number(buffer, 0, "frame version")
    if frame != FRAME_VERSION:
        raise ProtocolFault(f"frame version {frame} is not known")
    record_type, position = _read_number(buffer, position, "record type")
    version, position = _read_number(buffer, position, "record version")
    if record_type not in types:
        raise UnknownRecordType(record_type)
    message, end = decode_prefix(types[record_type], version, buffer, position)
    if end != len(buffer):
        raise ProtocolFault(f"{len(buffer) - end} bytes behind record of type {record_type}")
    return Versioned(message, version)


def _read_number(buffer: Buffer, position: int, what: str) -> tuple[int, int]:
    try:
        number, position = read_uvarint(buffer, position)
    except IndexError:
        raise ProtocolFault(f"record ends within its {what}") from None
    if number > TYPE_MAX:
        raise ProtocolFault(f"{what} {number} is out of range")
    return number, position


class Pair(msgspec.Struct, frozen=True):
    """The types of key and value that belong to one record type."""

    key: type[Message]
    value: type[Message]


class CoordinatorRecord(msgspec.Struct, frozen=True):
    """A key and its value; None is a tombstone, which removes the key."""

    key: Message
    value: Versioned | None


def encode_key(key: Message) -> bytes:
    """Write the key of a coordinator record."""
    return _prefixed(_type_of(key), key, KEY_VERSION)


def encode_value(value: Versioned | None) -> bytes | None:
    """Write the value of a coordinator record; None stays None."""
    return None if value is None else _prefixed(value.version, value.message, value.version)


def _prefixed(prefix: int, message: Message, version: int) -> bytes:
    return prefix.to_bytes(2, "big", signed=True) + encode(message, version)


def _type_of(message: Message) -> int:
    record_type = message.SCHEMA.api_key
    assert record_type is not None, f"{type(message).__name__} is no record of its own"
    return record_type


def decode_pair(
    types: Mapping[int, Pair], key: Buffer | None, value: Buffer | None
) -> CoordinatorRecord:
    """Read a coordinator record. Raises `ProtocolFault`."""
    if key is None:
        raise ProtocolFault("record of a coordinator without key")
    record_type, key_body = _split_prefix(key, "key")
    if record_type not in types:
        raise UnknownRecordType(record_type)
    pair = types[record_type]
    decoded = decode(pair.key, KEY_VERSION, key_body)
    if value is None:
        return CoordinatorRecord(decoded, None)
    version, value_body = _split_prefix(value, "value")
    return CoordinatorRecord(decoded, Versioned(decode(pair.value, version, value_body), version))


def _split_prefix(buffer: Buffer, what: str) -> tuple[int, memoryview]:
    view = memoryview(buffer)
    if len(view) < 2:
        raise ProtocolFault(f"{what} ends within its first two bytes")
    return int.from_bytes(view[:2], "big", signed=True), view[2:]
