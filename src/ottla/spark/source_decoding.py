"""Keys and values as columns of structs, by the schemas of a registry (``valueFormat=registry``).

The column ``value`` then has the type of the newest schema of its subject, ``<topic>-value`` unless
``valueSubject`` names another. Values of older versions are read as that schema. A bad value fails
the query with its partition and offset, or is null (``badValues=null``); for dead letters, use a
table job.
"""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from ottla.formats.record_values import as_column, decode_all, framed_column
from ottla.formats.registry_client import UnknownSchema
from ottla.formats.registry_values import SINGLE, RegistryValues, SubjectValues, subject_values
from ottla.formats.schema_bounds import BadSchema
from ottla.protocol.types import TopicPartition
from ottla.spark.columns import HEADERS, full_schema
from ottla.spark.option_values import OptionError
from ottla.spark.options import Decoding, SourceOptions, Subscribe


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
        self._values: dict[tuple[str, str], SubjectValues] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return SourceDecoder, (self._decoding,)

    def columns(self, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns to read: the chosen ones, the offset for messages, and headers.

        A header of a record may name the schema of its key or value.
        """
        needed = ("offset", HEADERS) if set(chosen) & set(self._decoding.parts) else ("offset",)
        return (*chosen, *(name for name in needed if name not in chosen))

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
        values = self._values_of(at.topic, field.name)
        data = framed_column(field.name, batch.column(field.name), batch.column(HEADERS))
        decoded, reasons = decode_all(data, values.decode)
        is_record = pa.types.is_struct(field.type)
        rows = [row if is_record or row is None else row.get(SINGLE) for row in decoded]
        column = as_column(rows, field.type, reasons, "does not fit the column: ")
        for index, reason in enumerate(() if self._decoding.is_bad_null else reasons):
            if reason is not None:
                offset = batch.column("offset")[index].as_py()
                raise BadValue(
                    f"{at} at offset {offset}: the {field.name}: {reason}; "
                    "badValues=null reads such records as null"
                )
        return column

    def _values_of(self, topic: str, part: str) -> SubjectValues:
        if (topic, part) not in self._values:
            subject = self._decoding.parts[part] or f"{topic}-{part}"
            self._values[topic, part] = SubjectValues(self._decoding.registry, subject)
        return self._values[topic, part]
