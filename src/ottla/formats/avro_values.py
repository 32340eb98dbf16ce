"""Decodes values of one Avro datum each into the columns of its schema.

A datum does not contain its schema: the writer's schema is in a file. Producers that use a schema
registry write five bytes before the datum (0, then the schema id, big endian); these bytes are
skipped, and the schema file must match the id.

========================  =====================================
Avro                      column
========================  =====================================
int, long                 int, bigint
float, double             float, double
string, enum, uuid        string
bytes, fixed              binary
record                    struct (the outermost: columns)
array, map                array, map
union of null and one     that one, or null
date, timestamp-*         date, timestamp
local-timestamp-*         timestamp without a time zone
decimal                   decimal
========================  =====================================
"""

import io
import json
from typing import Any, Final, TypeAlias

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from ottla.formats.schema_bounds import BadSchema as BadSchema
from ottla.formats.schema_bounds import check_avro
from ottla.formats.wire_format import split_frame

Json: TypeAlias = Any

_PRIMITIVE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
# Logical types that are read as their underlying type (a string or a number).
_PLAIN: Final = frozenset({"uuid", "time-millis", "time-micros", "duration"})
DECIMAL_BYTES_MAX: Final = 4096
"""A column has 38 digits in 16 bytes; the time to convert a decimal grows with its square."""
_DECIMAL: Final = "bytes-decimal"
_read_decimal: Final = LOGICAL_READERS[_DECIMAL]


def _read_bounded_decimal(data: bytes, *schemas: Json) -> Json:
    if len(data) > DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(data)} bytes")
    return _read_decimal(data, *schemas)


LOGICAL_READERS[_DECIMAL] = _read_bounded_decimal


class AvroValues:
    """Reads values of one schema."""

    def __init__(self, text: str, *, framed: bool = False) -> None:
        named: dict[str, Any] = {}
        try:
            declared = without_plain(json.loads(text))
            self._schema = fastavro.parse_schema(declared, named_schemas=named)
            check_avro(self._schema, named)
        except BadSchema:
            raise
        except Exception as error:  # fastavro raises nearly anything for an invalid schema
            raise BadSchema(f"not an Avro schema: {error!r}") from error
        self.is_framed = framed
        kind = avro_type(declared)
        if not pa.types.is_struct(kind):
            raise BadSchema("the outermost type of an Avro schema must be a record")
        self.columns = pa.schema(list(kind))

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return one value's columns.

        Raises:
            ValueError: the bytes are not exactly one datum of this schema.
        """
        start = split_frame(value)[1] if self.is_framed else 0
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            found = fastavro.schemaless_reader(stream, self._schema, None)
        except Exception as error:
            raise ValueError(f"not Avro of this schema: {error!r}") from error
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes remain after the value")
        assert isinstance(found, dict)
        return found


def avro_type(declared: Json) -> pa.DataType:
    """Return the type of a column for a schema. Raises BadSchema."""
    try:
        return _column(declared, {}, ())
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"not an Avro schema: {error!r}") from error


def without_plain(declared: Json) -> Json:
    """Remove the logical types that are read as their underlying type."""
    if isinstance(declared, list):
        return [without_plain(each) for each in declared]
    if not isinstance(declared, dict):
        return declared
    return {
        key: without_plain(value)
        for key, value in declared.items()
        if not (key == "logicalType" and value in _PLAIN)
    }


def _column(declared: Json, named: dict[str, pa.DataType], path: tuple[str, ...]) -> pa.DataType:
    if isinstance(declared, list):
        return _union(declared, named, path)
    if isinstance(declared, str):
        found = _PRIMITIVE.get(declared) or named.get(declared)
        if found is None:
            raise BadSchema(f"{_where(path)}: type {declared!r} is unknown or recursive")
        return found
    return _complex(declared, named, path)


def _complex(
    declared: dict[str, Any], named: dict[str, pa.DataType], path: tuple[str, ...]
) -> pa.DataType:
    kind = declared["type"]
    if declared.get("logicalType") == "decimal":
        return pa.decimal128(declared["precision"], declared.get("scale", 0))
    if (logical := _LOGICAL.get(declared.get("logicalType", ""))) is not None:
        return logical
    if kind == "array":
        return pa.list_(_column(declared["items"], named, (*path, "[]")))
    if kind == "map":
        return pa.map_(pa.string(), _column(declared["values"], named, (*path, "{}")))
    if kind in ("enum", "fixed"):
        found = pa.string() if kind == "enum" else pa.binary()
    elif kind == "record":
        found = pa.struct(
            [
                pa.field(each["name"], _column(each["type"], named, (*path, each["name"])))
                for each in declared["fields"]
            ]
        )
    else:
        return _column(kind, named, path)
    for name in (declared["name"], f"{declared.get('namespace', '')}.{declared['name']}"):
        named[name] = found
    return found


def _union(
    declared: list[Any], named: dict[str, pa.DataType], path: tuple[str, ...]
) -> pa.DataType:
    others = [each for each in declared if each != "null"]
    if len(others) != 1:
        raise BadSchema(
            f"{_where(path)}: a union of {len(others)} types is not supported; "
            "only a union of null and one type is"
        )
    return _column(others[0], named, path)


def _where(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the schema"
