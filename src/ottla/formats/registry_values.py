"""Decodes keys and values in a registry's wire format into the columns of one reader's schema.

Every value names the schema that it was written with, by an id or a guid (`wire_format.py`); a guid
in a record header has been put before the value. It is decoded with that one and then read as
the reader's schema, by the rules of its format: Avro resolves the schemas of writer and reader,
Protobuf goes by field numbers, JSON by names. So all values of a topic have the same columns,
whatever versions of its schema they were written with, also within one micro-batch.

The reader's schema is the newest of the subject, unless one is given. A value with an unknown id,
or of another format, is bad by itself (ValueError). If the registry does not answer
(`RegistryFailed`), the query or the task fails; Spark repeats the task.
"""

import base64
import binascii
import io
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import fastavro
import pyarrow as pa

from ottla.formats.avro_values import avro_type, without_plain
from ottla.formats.json_schema import json_columns, json_fields
from ottla.formats.registry_client import (
    RegisteredSchema,
    Registry,
    RegistrySettings,
    UnknownSchema,
    registry_for,
)
from ottla.formats.schema_bounds import BadSchema, check_avro
from ottla.formats.wire_format import SchemaRef, split_frame, split_indexes

Json: TypeAlias = Any
Decode: TypeAlias = Callable[[bytes, int], dict[str, Any]]
"""Returns the columns of a value whose payload begins at a position."""
WRITERS_MAX: Final = 200
"""Parsed schemas of writers that are kept."""
SINGLE: Final = "value"
"""The field of a value that is not a record but, say, a number."""


class RegistryValues:
    """Decodes values of any version of one schema. Pickled by its settings and reader's schema."""

    is_framed = True

    def __init__(self, settings: RegistrySettings, reader: RegisteredSchema) -> None:
        self._made_of = settings, reader
        self._registry = registry_for(settings)
        self.kind = reader.kind
        self._reader = _reader_of(reader, self._registry)
        self._writers: dict[SchemaRef, Decode] = {}
        self.columns: pa.Schema = self._reader.columns

    def __reduce__(self) -> tuple[object, ...]:
        return RegistryValues, self._made_of

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return one value's columns.

        Raises:
            ValueError: the value cannot be decoded, or its schema is unknown or of another format.
            RegistryFailed: the registry does not answer.
        """
        ref, start = split_frame(value)
        writer = self._writers.get(ref)
        if writer is None:
            writer = self._writer(ref)
            if len(self._writers) >= WRITERS_MAX:
                self._writers.pop(next(iter(self._writers)))
            self._writers[ref] = writer
        return writer(value, start)

    def _writer(self, ref: SchemaRef) -> Decode:
        schema = self._registry.schema(ref, serialized=self.kind == "PROTOBUF")
        if schema.kind != self.kind:
            raise ValueError(f"{schema.label} is {schema.kind}, not {self.kind}")
        try:
            return self._reader.writer(schema, self._registry)
        except BadSchema as error:
            raise ValueError(f"{schema.label}: {error}") from error


def subject_values(
    settings: RegistrySettings, subject: str, sample: bytes | None = None
) -> RegistryValues:
    """Return a decoder for the newest schema of a subject, or else for that of a sampled value.

    Raises:
        UnknownSchema: the subject does not exist, and no sampled value has a known schema.
        BadSchema: the schema cannot be mapped to columns. RegistryFailed: as `Registry`.
    """
    registry = registry_for(settings)
    try:
        found = registry.latest(subject)
    except UnknownSchema:
        if sample is None:
            raise
        found = registry.schema(split_frame(sample)[0])
    if found.kind == "PROTOBUF":
        found = registry.schema(found.id or found.guid or 0, serialized=True)
    return RegistryValues(settings, found)


class SubjectValues:
    """Decodes by the newest schema of a subject, or by that of the first value with a known one.

    Nothing is requested before the first value.
    """

    def __init__(self, settings: RegistrySettings, subject: str) -> None:
        self._settings = settings
        self._subject = subject
        self._values: RegistryValues | None = None

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return one value's columns. Raises as `RegistryValues.decode`."""
        if self._values is None:
            try:
                self._values = subject_values(self._settings, self._subject, value)
            except (UnknownSchema, BadSchema) as error:
                raise ValueError(str(error)) from error
        return self._values.decode(value)


class _Avro:
    """Avro: fastavro resolves the schemas."""

    def __init__(self, schema: RegisteredSchema, registry: Registry) -> None:
        self._schema, declared = avro_schema(schema, registry)
        kind = avro_type(declared)
        self._is_record = pa.types.is_struct(kind)
        self.columns = pa.schema(list(kind) if self._is_record else [(SINGLE, kind)])

    def writer(self, schema: RegisteredSchema, registry: Registry) -> Decode:
        written, _ = avro_schema(schema, registry)
        reader = None if schema.text == self._schema else self._schema

        def decode(value: bytes, start: int) -> dict[str, Any]:
            stream = io.BytesIO(value)
            stream.seek(start)
            try:
                found = fastavro.schemaless_reader(stream, written, reader)
            except Exception as error:  # fastavro raises nearly anything
                raise ValueError(f"not Avro of {schema.label}: {error!r}") from error
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes remain after the value")
            return found if self._is_record else {SINGLE: found}  # type: ignore[return-value]

        return decode


def avro_schema(schema: RegisteredSchema, registry: Registry) -> tuple[Json, Json]:
    """Return a schema as fastavro parses it, and as JSON with its references inlined.

    Raises:
        BadSchema, UnknownSchema, RegistryFailed
    """
    named: dict[str, Any] = {}
    try:
        for text in registry.referenced(schema).values():
            fastavro.parse_schema(without_plain(json.loads(text)), named_schemas=named)
        declared = without_plain(json.loads(schema.text))
        parsed = fastavro.parse_schema(declared, named_schemas=named)
        check_avro(parsed, named)
        whole = fastavro.schema.expand_schema(parsed) if schema.references else declared
    except (UnknownSchema, BadSchema):
        raise
    except Exception as error:  # fastavro raises nearly anything for an invalid schema
        raise BadSchema(f"not an Avro schema: {error!r}") from error
    return parsed, whole


class _Json:
    """JSON Schema: fields by name."""

    def __init__(self, schema: RegisteredSchema, registry: Registry) -> None:
        self._declared = _loaded(schema.text)
        self.columns = json_columns(self._declared)

    def writer(self, schema: RegisteredSchema, registry: Registry) -> Decode:
        return self._decode

    def _decode(self, value: bytes, start: int) -> dict[str, Any]:
        try:
            found = json.loads(value[start:])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"not an object of JSON but {type(found).__name__}")  # noqa: TRY004
        return json_fields(found, self.columns)


def _loaded(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"not a JSON Schema: {error}") from error


class _Protobuf:
    """Protobuf: the bytes are parsed with the reader's message, if the writer's has its name."""

    def __init__(self, schema: RegisteredSchema, registry: Registry) -> None:
        from ottla.formats.protobuf_values import ProtobufValues, first_message

        files = protobuf_descriptors(schema, registry)
        self._message = first_message(files)
        self._values = ProtobufValues(files, self._message)
        self.columns = self._values.columns

    def writer(self, schema: RegisteredSchema, registry: Registry) -> Decode:
        from ottla.formats.protobuf_values import message_at

        files = protobuf_descriptors(schema, registry)

        def decode(value: bytes, start: int) -> dict[str, Any]:
            indexes, start = split_indexes(value, start)
            name = message_at(files, indexes)
            if name != self._message:
                raise ValueError(f"the message is {name}, not {self._message}")
            return self._values.decode(value[start:])

        return decode


def protobuf_descriptors(schema: RegisteredSchema, registry: Registry) -> bytes:
    """Return a schema and those it uses, itself last, as a set of descriptors.

    Raises:
        BadSchema: the registry does not serialize schemas, or a file cannot be used.
        RegistryFailed: it does not answer.
    """
    from ottla.formats.protobuf_values import descriptor_set

    texts = registry.referenced(schema, serialized=True)
    texts["schema.proto"] = schema.text
    found = {}
    for name, text in texts.items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadSchema(
                f"{schema.label}: the registry does not return Protobuf schemas in "
                "serialized form (format=serialized); use a descriptor set in a file instead"
            ) from None
    return descriptor_set(found)


_Reader: TypeAlias = _Avro | _Json | _Protobuf
_READERS: Final[dict[str, type[_Avro] | type[_Json] | type[_Protobuf]]] = {
    "AVRO": _Avro,
    "JSON": _Json,
    "PROTOBUF": _Protobuf,
}


def _reader_of(schema: RegisteredSchema, registry: Registry) -> _Reader:
    made = _READERS.get(schema.kind)
    if made is None:
        raise BadSchema(f"{schema.label} is of the unknown type {schema.kind}")
    return made(schema, registry)
