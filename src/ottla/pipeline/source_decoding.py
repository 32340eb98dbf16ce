"""Keys and values as columns of structs, by the schemas of a registry (``valueFormat=registry``).

The column ``value`` then has the type of the newest schema of its subject, ``<topic>-value`` unless
``valueSubject`` names another. Values of older versions are read as that schema. A bad value fails
the query with its partition and offset, or is null (``badValues=null``); for dead letters, use a
table job.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from ottla.pipeline.avro_values import BadSchema
from ottla.pipeline.columns import full_schema
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import Decoding, SourceOptions, Subscribe
from ottla.pipeline.registry import UnknownSchema
from ottla.pipeline.registry_values import SINGLE, RegistryValues, subject_values
from ottla.protocol.types import TopicPartition


class BadValue(ValueError):
    """A key or value that cannot be decoded; the message names the record."""


def source_schema(options: SourceOptions) -> StructType:
    """Return all columns; those of the registry have the types of their newest schemas.

    Raises:
        OptionError: there is no such schema, or more than one topic without a subject.
        RegistryFailed: the registry does not answer.
    """
    schema = full_schema(options.include_headers)
    if options.decoding is None:
        return schema
    found = []
    for field in schema.fields:
        kind = field.dataType
        if field.name in options.decoding.parts:
            kind = _part_type(options, options.decoding, field.name)
        found.append(StructField(field.name, kind))
    return StructType(found)


def _part_type(options: SourceOptions, decoding: Decoding, part: str) -> DataType:
    subject = decoding.parts[part]
    if subject is None:
        choice = options.choice
        if not isinstance(choice, Subscribe) or len(choice.topics) != 1:
            raise OptionError(f"option '{part}Subject' is needed to read more than one topic")
        subject = f"{choice.topics[0]}-{part}"
    try:
        values = subject_values(decoding.registry, subject)
    except (UnknownSchema, BadSchema) as error:
        raise OptionError(f"option '{part}Format': subject {subject}: {error}") from error
    return from_arrow_type(_type_of(values))


def _type_of(values: RegistryValues) -> pa.DataType:
    if values.columns.names == [SINGLE]:
        return values.columns.field(0).type
    return pa.struct(list(values.columns))


class SourceDecoder:
    """Decodes the record batches of one reader; holds the decoders of its process."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._values: dict[tuple[str, str], RegistryValues] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return SourceDecoder, (self._decoding,)

    def columns(self, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns to read: the chosen ones, and the offset for messages."""
        return chosen if "offset" in chosen else (*chosen, "offset")

    def decode(
        self, batch: pa.RecordBatch, at: TopicPartition, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return the columns of ``schema``.

        Raises:
            BadValue: a key or value cannot be decoded, and is not to be null. RegistryFailed.
        """
        arrays = []
        for field in schema:
            column = batch.column(field.name)
            if field.name in self._decoding.parts:
                arrays.append(self._part(batch, at, field))
            else:
                arrays.append(column.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _part(self, batch: pa.RecordBatch, at: TopicPartition, field: pa.Field) -> pa.Array:
        rows = []
        for index, data in enumerate(batch.column(field.name).to_pylist()):
            try:
                rows.append(None if data is None else self._datum(at.topic, field, data))
            except ValueError as error:
                if not self._decoding.is_bad_null:
                    offset = batch.column("offset")[index].as_py()
                    raise BadValue(
                        f"{at} at offset {offset}: the {field.name}: {error}; "
                        "badValues=null reads such records as null"
                    ) from error
                rows.append(None)
        return pa.array(rows, field.type)

    def _datum(self, topic: str, field: pa.Field, data: bytes) -> Any:  # noqa: ANN401 - any type
        place = (topic, field.name)
        if place not in self._values:
            subject = self._decoding.parts[field.name] or f"{topic}-{field.name}"
            self._values[place] = subject_values(self._decoding.registry, subject, data)
        found = self._values[place].decode(data)
        datum = found if pa.types.is_struct(field.type) else found.get(SINGLE)
        try:
            return pa.scalar(datum, field.type).as_py(maps_as_pydicts=None)
        except (TypeError, OverflowError, pa.ArrowException) as error:
            raise ValueError(f"does not fit the column: {error}") from error
