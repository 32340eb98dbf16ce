"""Encodes keys and values in a registry's wire format, and registers their schemas.

Schemas are registered once per subject and process; the registry decides whether a new version is
compatible. Columns of a DataFrame become Avro, JSON Schema or Protobuf by `avro_schema_of`,
`json_schema_of` and `protobuf_writer.message_of`: every field may be null.
"""

import datetime
import decimal
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro
import pyarrow as pa

from ottla.formats.json_schema import json_columns, json_fields
from ottla.formats.registry_client import (
    RegisteredSchema,
    Registry,
    RegistryFailed,
    RegistrySettings,
    UnknownSchema,
    registry_for,
)
from ottla.formats.registry_values import avro_schema, protobuf_descriptors
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.subjects import Encoding, SubjectStrategy
from ottla.formats.wire_format import framed, guid_frame

Json: TypeAlias = Any
Encode: TypeAlias = Callable[[object], bytes]
FIRST_MESSAGE: Final = b"\0"
"""The path of a message that is the first of its schema, before the message."""


class EncodedPart(NamedTuple):
    """A key or value in the registry's format. ``path`` is that of a Protobuf message."""

    schema: RegisteredSchema
    path: bytes
    payload: bytes

    @property
    def with_id(self) -> bytes:
        """The payload after the id of its schema."""
        return framed(self.schema.id, self.path + self.payload)

    @property
    def header(self) -> bytes:
        """The header that names the schema of the payload by its guid. Raises RegistryFailed."""
        if self.schema.guid is None:
            raise RegistryFailed(
                "the schema registry has no guids, so none can be put into headers: it is older "
                "than Confluent's version 8; write the id before the payload instead"
            )
        return guid_frame(self.schema.guid) + self.path


class RegistryWriter:
    """Encodes the keys or values of one schema. Pickled by its settings.

    ``text`` is a schema in Avro or JSON, or a ``.proto`` file, of which the first message is
    written. ``descriptors`` are those of this file; None: the registry returns them.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        encoding: Encoding,
        strategy: SubjectStrategy,
        part: str,
        text: str,
        descriptors: bytes | None = None,
    ) -> None:
        self._made_of = settings, encoding, strategy, part, text, descriptors
        self._registry = registry_for(settings)
        self._encoding = encoding
        self._strategy = strategy
        self._part = part
        self._text = text
        self._record = record_name(encoding, text)
        self._encode: Encode | None = None
        if encoding is not Encoding.PROTOBUF:
            self._encode = encoder_of(encoding, text)
        elif descriptors is not None:
            self._encode = _protobuf_encoder(descriptors)

    def __reduce__(self) -> tuple[object, ...]:
        return RegistryWriter, self._made_of

    def prepare(self, topic: str) -> RegisteredSchema:
        """Register the schema for a topic; return it. Raises RegistryFailed."""
        subject = self._strategy.subject(topic, self._part, self._record)
        return self._registry.register(subject, self._encoding.name, self._text)

    def encode(self, topic: str, datum: object) -> bytes:
        """Return the bytes of a key or value, with the id of its schema.

        Raises:
            ValueError: it does not fit the schema. RegistryFailed: as `prepare`.
        """
        return self.encode_part(topic, datum).with_id

    def encode_part(self, topic: str, datum: object) -> EncodedPart:
        """Return a key or value and its schema. Raises as `encode`."""
        schema = self.prepare(topic)
        if self._encode is None:
            # A .proto file: the registry compiles it.
            compiled = self._registry.schema(schema.id, serialized=True)
            self._encode = _protobuf_encoder(protobuf_descriptors(compiled, self._registry))
        return EncodedPart(schema, _path(self._encoding), self._encode(datum))


class SubjectWriter:
    """Encodes keys or values with the newest schema of a subject, which is not registered again."""

    def __init__(self, settings: RegistrySettings, encoding: Encoding, subject: str) -> None:
        """Raises: BadSchema: there is none of this format. RegistryFailed."""
        registry = registry_for(settings)
        try:
            schema = registry.latest(subject)
            if schema.kind != encoding.name:
                raise BadSchema(
                    f"the newest schema of subject {subject} is {schema.kind}, not {encoding.name}"
                )
            self._encode = _registered_encoder(registry, encoding, schema)
        except UnknownSchema as error:
            raise BadSchema(
                f"{error}; register a schema first (ottla schema register {subject} FILE), or give "
                "a schema file"
            ) from error
        self._schema = schema
        self._path = _path(encoding)

    def encode_part(self, topic: str, datum: object) -> EncodedPart:
        """Return a key or value and its schema. Raises ValueError: it does not fit the schema."""
        return EncodedPart(self._schema, self._path, self._encode(datum))


def _registered_encoder(registry: Registry, encoding: Encoding, schema: RegisteredSchema) -> Encode:
    if encoding is Encoding.PROTOBUF:
        compiled = registry.schema(schema.id, serialized=True)
        return _protobuf_encoder(protobuf_descriptors(compiled, registry))
    if encoding is Encoding.AVRO:
        return _avro_encoder(avro_schema(schema, registry)[0])
    return encoder_of(encoding, schema.text)


def _path(encoding: Encoding) -> bytes:
    return FIRST_MESSAGE if encoding is Encoding.PROTOBUF else b""


def _protobuf_encoder(descriptors: bytes) -> Encode:
    """Return a function that encodes the first message."""
    from ottla.formats.protobuf_writer import message_encoder

    return message_encoder(descriptors)


def encoder_of(encoding: Encoding, text: str) -> Encode:
    """Return a function that encodes one datum, without a frame. Raises BadSchema."""
    if encoding is Encoding.JSON:
        columns = json_columns(_loaded(text))

        def encode_json(datum: object) -> bytes:
            if not isinstance(datum, Mapping):
                raise ValueError(f"not an object but {type(datum).__name__}")  # noqa: TRY004
            plain = _plain(datum)
            json_fields(plain, columns)  # raises where a field has another type
            return json.dumps(plain, ensure_ascii=False).encode()

        return encode_json
    try:
        schema = fastavro.parse_schema(_loaded(text))
    except Exception as error:  # fastavro raises nearly anything for an invalid schema
        raise BadSchema(f"not an Avro schema: {error!r}") from error
    return _avro_encoder(schema)


def _avro_encoder(schema: Json) -> Encode:
    def encode_avro(datum: object) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, schema, datum, strict_allow_default=True)
        except Exception as error:
            raise ValueError(f"does not fit the schema: {error!r}") from error
        return out.getvalue()

    return encode_avro


def record_name(encoding: Encoding, text: str) -> str:
    """Return the full name of the record that a schema declares. Raises BadSchema."""
    if encoding is Encoding.PROTOBUF:
        from ottla.formats.protobuf_writer import declared_name

        return declared_name(text)
    declared = _loaded(text)
    if encoding is Encoding.JSON:
        return str(declared.get("title") or "record") if isinstance(declared, dict) else "record"
    if not isinstance(declared, dict) or "name" not in declared:
        return str(declared.get("type") if isinstance(declared, dict) else declared)
    name, space = str(declared["name"]), declared.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _loaded(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadSchema(f"not a schema: {error}") from error


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of Arrow
    match value:
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode("latin-1")
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case _:
            return value


# -- schemas of columns ----------------------------------------------------------------

_AVRO: Final[dict[pa.DataType, Json]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


def avro_schema_of(kind: pa.DataType, name: str) -> str:
    """Return an Avro schema for a column. Raises BadSchema for a type that Avro does not have."""
    return json.dumps(_avro(kind, re.sub(r"\W", "_", name)))


def _avro(kind: pa.DataType, name: str) -> Json:
    if kind in _AVRO:
        return _AVRO[kind]
    if pa.types.is_timestamp(kind):
        prefix = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{prefix}timestamp-micros"}
    if pa.types.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, f"{name}_item")]}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro(kind.item_type, f"{name}_value")]}
    if pa.types.is_struct(kind):
        fields = [
            {
                "name": each.name,
                "type": ["null", _avro(each.type, f"{name}_{each.name}")],
                "default": None,
            }
            for each in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    raise BadSchema(f"{name}: Avro has no type for {kind}")


def json_schema_of(kind: pa.DataType, name: str) -> str:
    """Return a JSON Schema for a column of structs. Raises BadSchema."""
    if not pa.types.is_struct(kind):
        raise BadSchema(f"{name}: JSON Schema is for structs, not {kind}")
    return json.dumps({"title": re.sub(r"\W", "_", name), **_json(kind)})


def _json(kind: pa.DataType) -> dict[str, Json]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {e.name: _nullable(e.type) for e in kind}}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type)}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _nullable(kind.item_type)}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    return {"type": "number" if pa.types.is_floating(kind) else "string"}


def _nullable(kind: pa.DataType) -> dict[str, Json]:
    return {"oneOf": [{"type": "null"}, _json(kind)]}
