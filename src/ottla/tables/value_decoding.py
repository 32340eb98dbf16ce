"""Decodes a topic's rows into the columns of a table, with a reason for each bad row.

Input rows have the columns of the source. Output rows have the columns of their values, followed by
those of the source (``key``, ``topic``, ``partition``, ``offset``, ``timestamp``) and
``ottla_reason``: null for a good row, else a sentence. No row is dropped here.
``ottla_change`` says what the record does to the row of its key.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ottla.client.blocking.broker_client import ClientSettings
from ottla.formats.record_values import (
    BadFormatOption,
    Format,
    PartOptions,
    Values,
    as_column,
    decode_all,
    file_values,
    framed_column,
)
from ottla.formats.registry_client import RegistryFailed, RegistrySettings, UnknownSchema
from ottla.formats.registry_values import subject_values
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.sql_names import spark_name
from ottla.spark.columns import HEADERS
from ottla.tables.debezium_values import decode_debezium, registry_events
from ottla.tables.job import (
    CHANGE_COLUMN,
    HEADERS_COLUMN,
    KEY_COLUMN,
    REASON_COLUMN,
    BadJob,
    Change,
    TableJob,
    ValueFormat,
    ValueSpec,
    registry_of,
)

SOURCE_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp")
KEY, VALUE = "key", "value"
KEY_REASON: Final = "ottla_key_reason"
_VALUE: Final = "ottla_value"
_CORRUPT: Final = "ottla_corrupt"
_NULL: Final = "the value is null"


def decode(rows: DataFrame, job: TableJob) -> DataFrame:
    """Return the table's columns, the source's columns, and the reason of a bad row.

    Raises:
        BadJob: the schema cannot be read or used.
    """
    if HEADERS in rows.columns and "includeHeaders" not in job.source:  # for dead letters only
        rows = rows.withColumnRenamed(HEADERS, HEADERS_COLUMN)
    if job.record_key is not None:
        rows = _with_key(rows, _registry_values(job, KEY))
    if job.value.format is ValueFormat.RAW:
        found = rows.withColumn(REASON_COLUMN, F.lit(None).cast("string"))
    elif job.value.registry is not None:
        found = _decode_here(rows, _registry_values(job))
        if job.value.format is ValueFormat.DEBEZIUM:
            found = registry_events(found, _kept(rows))
    elif job.value.format is ValueFormat.JSON:
        found = _decode_json(rows, job.value)
    elif job.value.format is ValueFormat.DEBEZIUM:
        found = decode_debezium(rows, _declared(job.value), _kept(rows))
    else:
        found = _decode_here(rows, _values_of(job.value))
    if CHANGE_COLUMN not in found.columns:
        found = found.withColumn(CHANGE_COLUMN, _change_of(job))
    for name, sql in {**job.key_expressions, **job.columns}.items():
        found = found.withColumn(name, F.expr(sql))
    found = found.withColumn(REASON_COLUMN, _reason(job))
    return found if job.record_key is None else found.drop(KEY_COLUMN, KEY_REASON)


def _change_of(job: TableJob) -> Column:
    if not job.deletes_by_tombstone:
        return F.lit(Change.UPSERT.value)
    is_tombstone = F.col("value").isNull()
    return F.when(is_tombstone, Change.DELETE.value).otherwise(Change.UPSERT.value)


def _reason(job: TableJob) -> Column:
    """Return why a row is bad: a delete needs only its key."""
    bad_key = [] if job.record_key is None else [F.col(KEY_REASON)]
    reasons = [*bad_key, F.col(REASON_COLUMN)]
    reasons += [
        F.when(F.col(spark_name(name)).isNull(), F.lit(f"column {name} is missing"))
        for name in job.required
    ]
    no_key: list[Column] = [
        F.when(
            F.col(spark_name(name)).isNull(),
            F.lit(f"mode {job.mode.value}: key column {name} is null"),
        )
        for name in job.key_columns
    ]
    change = F.col(CHANGE_COLUMN)
    decoded = F.lit(None) if job.value.format is not ValueFormat.DEBEZIUM else F.col(REASON_COLUMN)
    nothing = F.lit(None).cast("string")
    return (
        F.when(change == Change.NONE.value, nothing)
        .when(
            change == Change.DELETE.value,
            F.coalesce(*bad_key, decoded.cast("string"), *no_key, nothing),
        )
        .otherwise(F.coalesce(*reasons, *no_key))
    )


def _kept(rows: DataFrame) -> list[str]:
    """Return the columns of the source that stay beside those of the value."""
    more = (HEADERS, HEADERS_COLUMN, KEY_COLUMN, KEY_REASON)
    return [*SOURCE_COLUMNS, "value", *(each for each in more if each in rows.columns)]


# -- JSON, which Spark reads itself ------------------------------------------


def _declared(value: ValueSpec) -> StructType:
    """Return the schema of the job. Raises BadJob."""
    assert value.schema is not None
    try:
        declared = StructType.fromDDL(value.schema)
    except Exception as error:
        raise BadJob(f"value.schema: {error}") from error
    if not isinstance(declared, StructType):
        raise BadJob(f"value.schema: {value.schema!r} is a single type, not columns")
    _check_names(declared.names)
    return declared


def _decode_json(rows: DataFrame, value: ValueSpec) -> DataFrame:
    declared = _declared(value)
    schema = StructType([*declared.fields, StructField(_CORRUPT, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = rows.withColumn(_VALUE, F.from_json(text, schema, options))
    corrupt = F.col(f"{_VALUE}.{_CORRUPT}").isNotNull() | F.col(_VALUE).isNull()
    reason = (
        F.when(F.col("value").isNull(), F.lit(_NULL))
        .when(F.get_json_object(text, "$").isNull(), F.lit("the value is not JSON"))
        .when(corrupt, F.lit(f"the value does not fit the schema: {value.schema}"))
    )
    # from_json makes every field nullable, whatever the schema says.
    for field in declared.fields:
        if not field.nullable:
            is_null = F.col(_VALUE).getField(field.name).isNull()
            reason = reason.when(is_null, F.lit(f"column {field.name} is null"))
    return parsed.select(
        *(F.col(f"{_VALUE}.{spark_name(each)}").alias(each) for each in declared.names),
        *_kept(rows),
        reason.alias(REASON_COLUMN),
    )


# -- formats read in Python -------------------------------------------------


def _values_of(value: ValueSpec) -> Values:
    options = PartOptions(
        Format(value.format.value), None, value.schema_file, value.message, value.framed
    )
    try:
        return file_values("", VALUE, options, lambda name: Path(name).read_bytes())
    except BadFormatOption as error:
        raise BadJob(f"value.schema_file {error}") from error


def _registry_values(job: TableJob, part: str = VALUE) -> Values:
    """Return what decodes the values, or the keys, of a job. Raises BadJob."""
    spec, name = (job.value, "value") if part == VALUE else (job.record_key, "record_key")
    assert spec is not None
    subject = spec.subject or f"{job.topic}-{part}"
    try:
        found = subject_values(registry_of(spec) or _registry_of_cluster(job), subject)
    except (UnknownSchema, BadSchema) as error:
        raise BadJob(f"{name}.registry: {error}") from error
    except RegistryFailed as error:
        raise BadJob(str(error)) from error
    if spec.format is not ValueFormat.DEBEZIUM and found.kind != spec.format.name:
        raise BadJob(f"{name}.format is {spec.format.value}, but {subject} is {found.kind}")
    return found


def _registry_of_cluster(job: TableJob) -> RegistrySettings:
    """Return the registry that the brokers of a job publish."""
    prefix = "kafka."
    properties = {key.removeprefix(prefix): text for key, text in job.security_options.items()}
    servers = tuple(each.strip() for each in job.bootstrap.split(",") if each.strip())
    return RegistrySettings.of_cluster(ClientSettings(servers, "ottla-tables", properties))


def _with_key(rows: DataFrame, values: Values) -> DataFrame:
    """Add the decoded key as a struct, and the reason of a key that cannot be decoded."""
    key = StructField(KEY_COLUMN, StructType(from_arrow_schema(values.columns).fields))
    schema = StructType([*rows.schema.fields, key, StructField(KEY_REASON, StringType())])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield decode_keys(batch, values)

    return rows.mapInArrow(run, schema)


def decode_keys(batch: pa.RecordBatch, values: Values) -> pa.RecordBatch:
    """Put the decoded keys and the reasons of bad ones after the existing columns."""
    decoded, reasons = _decoded(batch, KEY, values)
    shown = [None if each is None else f"the key: {each}" for each in reasons]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, decoded, pa.array(shown, pa.string())],
        names=[*batch.schema.names, KEY_COLUMN, KEY_REASON],
    )


def _decode_here(rows: DataFrame, values: Values) -> DataFrame:
    _check_names(values.columns.names)
    kept = rows.select(*_kept(rows))
    fields = from_arrow_schema(values.columns).fields
    reason = StructField(REASON_COLUMN, StringType())
    schema = StructType([*fields, *kept.schema.fields, reason])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield decode_batch(batch, values)

    return kept.mapInArrow(run, schema)


def decode_batch(batch: pa.RecordBatch, values: Values) -> pa.RecordBatch:
    """Put the columns of ``value`` before the existing ones, and the reasons after them."""
    column = batch.column(VALUE)
    decoded, reasons = _decoded(batch, VALUE, values)
    for index in range(len(column) if column.null_count else 0):
        if not column[index].is_valid:
            reasons[index] = _NULL
    return pa.RecordBatch.from_arrays(
        [*decoded.flatten(), *batch.columns, pa.array(reasons, pa.string())],
        names=[*values.columns.names, *batch.schema.names, REASON_COLUMN],
    )


def _decoded(
    batch: pa.RecordBatch, part: str, values: Values
) -> tuple[pa.StructArray, list[str | None]]:
    """Return decoded keys or values, and the reason of each that cannot be decoded."""
    names = [each for each in (HEADERS, HEADERS_COLUMN) if each in batch.schema.names]
    headers = batch.column(names[0]) if names and values.is_framed else None
    rows, reasons = decode_all(framed_column(part, batch.column(part), headers), values.decode)
    return as_column(rows, pa.struct(list(values.columns)), reasons), reasons


def _check_names(names: Iterable[str]) -> None:
    taken = sorted({*SOURCE_COLUMNS, "value"} & {each.lower() for each in names})
    if taken:
        raise BadJob(
            f"the schema has a column {taken[0]!r}, which is also a column of the source; "
            "rename it in the schema"
        )
