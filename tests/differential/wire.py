"""Requests and replies as plain dictionaries, by the schemas of kio.

kio gives each message and version as a class; the bytes follow from its fields. Writing by hand
allows what kio's own writer rejects (null where null is not allowed, extreme times, unknown error
codes), and reading by hand keeps numbers as they travel. `test_wire.py` holds both equal to kio's
own writer and reader. A struct is a dict, an array is a list, a UUID is an ``UUID`` (zero for
kio's None), times are milliseconds.
"""

import dataclasses
import struct
import types
import typing
from functools import cache
from pkgutil import resolve_name
from uuid import UUID

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

CLIENT_ID = "differential"
ZERO_UUID = UUID(int=0)
API_KEYS = {name: key for key, name in api_key_map.items()}
_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "float64": ">d",
    "bool": ">?",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}
NUMBERS = {kind: struct.Struct(layout) for kind, layout in _NUMBERS.items()}
# Array fields of structs that are null by default; kio does not state it.
NULL_BY_DEFAULT = {
    ("ListPartitionReassignmentsRequest", "topics"),
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("StreamsGroupHeartbeatRequest", "active_tasks"),
    ("StreamsGroupHeartbeatRequest", "standby_tasks"),
    ("StreamsGroupHeartbeatRequest", "warmup_tasks"),
    ("StreamsGroupHeartbeatRequest", "client_tags"),
    ("StreamsGroupHeartbeatRequest", "task_offsets"),
    ("StreamsGroupHeartbeatRequest", "task_end_offsets"),
}


class Malformed(ValueError):
    """Bytes that are no message of the expected kind."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of one version of a struct. ``inner`` None: a primitive of ``kind``."""

    name: str
    kind: str
    inner: "Shape | None"
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One version of a message, header or nested struct."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...]
    header: "Shape | None"

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def versions(api: str) -> list[int]:
    """Return the versions of an API that kio knows."""
    return sorted(schema_name_map[api])


@cache
def request_shape(api: str, version: int) -> Shape:
    return shape_of(resolve_name(schema_name_map[api][version][EntityType.request]))


@cache
def response_shape(api: str, version: int) -> Shape:
    return shape_of(resolve_name(schema_name_map[api][version][EntityType.response]))


@cache
def shape_of(entity: type) -> Shape:
    """Describe a class of kio's."""
    header = getattr(entity, "__header_schema__", None)
    is_whole = entity.__type__ in (EntityType.request, EntityType.response)
    return Shape(
        entity.__name__,
        entity.__flexible__,
        tuple(_field_of(entity, field) for field in dataclasses.fields(entity)),
        shape_of(header) if is_whole and header is not None else None,
    )


def _field_of(entity: type, field: "dataclasses.Field[object]") -> Field:
    element, is_array, is_nullable = _unwrap(field.type)
    inner = shape_of(element) if dataclasses.is_dataclass(element) else None
    kind = field.metadata.get("kafka_type", "struct")
    if not is_array and kind in ("uuid", "datetime_i64"):
        is_nullable = False  # zeros and -1 travel
    default = _default(entity.__name__, field, kind, inner, is_array)
    tag = field.metadata.get("tag")
    return Field(field.name, kind, inner, is_array, is_nullable, tag, default)


def _unwrap(annotation: object) -> tuple[object, bool, bool]:
    is_nullable = is_array = False
    if isinstance(annotation, types.UnionType):
        is_nullable = True
        (annotation,) = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    if typing.get_origin(annotation) is tuple:
        is_array = True
        annotation = _unwrap(typing.get_args(annotation)[0])[0]
    return annotation, is_array, is_nullable


def _default(
    owner: str, field: "dataclasses.Field[object]", kind: str, inner: Shape | None, is_array: bool
) -> object:
    if is_array:
        is_null = field.default is None or (owner, field.name) in NULL_BY_DEFAULT
        return None if is_null else []
    if kind == "uuid":
        return ZERO_UUID
    if field.default is None:
        return -1 if kind == "datetime_i64" else None
    if inner is not None:
        return {}
    if field.default is not dataclasses.MISSING:
        value = field.default
        seconds = getattr(value, "total_seconds", None)
        return round(seconds() * 1000) if seconds else getattr(value, "value", value)
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


# -- writing ---------------------------------------------------------------------------


def encode_request(
    api: str,
    version: int,
    values: dict[str, object],
    correlation_id: int,
    client_id: str = CLIENT_ID,
) -> bytes:
    """Return header and body of a request, without the frame's length."""
    shape = request_shape(api, version)
    header = {
        "request_api_key": API_KEYS[api],
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    assert shape.header is not None
    out = bytearray()
    # The client id of a flexible header still has a length of two bytes.
    out += struct.pack(">hhi", header["request_api_key"], version, correlation_id)
    text = client_id.encode()
    out += struct.pack(">h", len(text)) + text
    if shape.header.is_flexible:
        out += b"\0"
    write_struct(out, shape, values)
    return bytes(out)


def write_struct(out: bytearray, shape: Shape, values: dict[str, object]) -> None:
    """Append a struct. Fields that this version lacks are left out; missing ones have defaults."""
    for field in shape.fields:
        if field.tag is None:
            _write_field(out, shape, field, values.get(field.name, field.default))
    if shape.is_flexible:
        _write_tags(out, shape, values)


def _write_tags(out: bytearray, shape: Shape, values: dict[str, object]) -> None:
    tagged = []
    for field in shape.fields:
        if field.tag is not None and field.name in values and values[field.name] != field.default:
            body = bytearray()
            _write_field(body, shape, field, values[field.name])
            tagged.append((field.tag, bytes(body)))
    raw = values.get("_tags", {})
    assert isinstance(raw, dict)
    tagged += raw.items()
    write_varint(out, len(tagged))
    for tag, body in sorted(tagged):
        write_varint(out, tag)
        write_varint(out, len(body))
        out += body


def _write_field(out: bytearray, shape: Shape, field: Field, value: object) -> None:
    if not field.is_array:
        _write_one(out, shape, field, value)
        return
    _write_length(out, shape.is_flexible, None if value is None else len(value), ">i")
    for item in value or ():
        _write_one(out, shape, field, item, is_item=True)


def _write_one(
    out: bytearray, shape: Shape, field: Field, value: object, *, is_item: bool = False
) -> None:
    if field.inner is not None:
        # Outside arrays, a struct that may be null has a byte before it.
        if field.is_nullable and not is_item:
            out += b"\xff" if value is None else b"\x01"
        if value is not None:
            write_struct(out, field.inner, value)
    elif field.kind == "uuid":
        out += (value or ZERO_UUID).bytes
    elif field.kind in NUMBERS:
        out += NUMBERS[field.kind].pack(value)
    else:
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        layout = ">h" if field.kind == "string" else ">i"
        _write_length(out, shape.is_flexible, None if raw is None else len(raw), layout)
        out += raw or b""


def _write_length(out: bytearray, is_flexible: bool, length: int | None, layout: str) -> None:
    if is_flexible:
        write_varint(out, 0 if length is None else length + 1)
    else:
        out += struct.pack(layout, -1 if length is None else length)


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# -- reading ---------------------------------------------------------------------------


class Reader:
    """Bytes of a reply and how far they were read."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, length: int) -> bytes:
        if length < 0 or self.at + length > len(self.raw):
            raise Malformed(f"{length} bytes at {self.at} of {len(self.raw)}")
        self.at += length
        return self.raw[self.at - length : self.at]

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return value

    def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed("a varint of more than five bytes")


def decode_response(api: str, version: int, raw: bytes) -> dict[str, object]:
    """Return the body of a reply; every byte must be used up.

    Raises:
        Malformed: the bytes are no such reply.
    """
    shape = response_shape(api, version)
    reader = Reader(raw)
    reader.take(4)  # the correlation id, checked by the connection
    if shape.header is not None and shape.header.is_flexible:
        _read_tags(reader, shape.header, {})
    values = read_struct(reader, shape)
    if reader.at != len(raw):
        raise Malformed(f"{len(raw) - reader.at} bytes behind the reply")
    return values


def read_struct(reader: Reader, shape: Shape) -> dict[str, object]:
    values: dict[str, object] = {}
    for field in shape.fields:
        if field.tag is None:
            values[field.name] = _read_field(reader, shape, field)
        else:
            values[field.name] = field.default
    if shape.is_flexible:
        _read_tags(reader, shape, values)
    return values


def _read_tags(reader: Reader, shape: Shape, values: dict[str, object]) -> None:
    by_tag = {field.tag: field for field in shape.fields if field.tag is not None}
    for _ in range(reader.varint()):
        tag, length = reader.varint(), reader.varint()
        body = reader.take(length)
        field = by_tag.get(tag)
        if field is None:
            values[f"_tag{tag}"] = body
            continue
        inner = Reader(body)
        values[field.name] = _read_field(inner, shape, field)
        if inner.at != length:
            raise Malformed(f"{length - inner.at} bytes behind the tagged field {field.name}")


def _read_field(reader: Reader, shape: Shape, field: Field) -> object:
    if not field.is_array:
        return _read_one(reader, shape, field)
    length = _read_length(reader, shape.is_flexible, ">i")
    if length is None:
        return None
    return [_read_one(reader, shape, field, is_item=True) for _ in range(length)]


def _read_one(reader: Reader, shape: Shape, field: Field, *, is_item: bool = False) -> object:
    if field.inner is not None:
        if field.is_nullable and not is_item and reader.take(1) == b"\xff":
            return None
        return read_struct(reader, field.inner)
    if field.kind == "uuid":
        return UUID(bytes=reader.take(16))
    if field.kind in NUMBERS:
        return reader.number(NUMBERS[field.kind])
    length = _read_length(reader, shape.is_flexible, ">h" if field.kind == "string" else ">i")
    if length is None:
        return None
    raw = reader.take(length)
    return raw.decode("utf-8", "surrogateescape") if field.kind == "string" else raw


def _read_length(reader: Reader, is_flexible: bool, layout: str) -> int | None:
    if is_flexible:
        length = reader.varint() - 1
    else:
        (length,) = struct.unpack(layout, reader.take(struct.calcsize(layout)))
    if length < 0:
        return None
    if length > len(reader.raw):
        raise Malformed(f"a length of {length} in {len(reader.raw)} bytes")
    return length
