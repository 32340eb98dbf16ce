"""Decodes Debezium's change events: the row after a change, or before a delete.

    {"before": {"id": 1}, "after": {"id": 1, "amount": 2.5}, "op": "u", "ts_ms": 1700000000000}

or the same below ``payload``, beside ``schema``, as Kafka Connect's JSON converter writes it with
its schema; or in the format of a schema registry, which is decoded before (`registry_events`).
``op`` is c (create), r (read, in a snapshot), u (update) or d (delete). The null value that follows
a delete, for compaction, changes nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.formats.sql_names import spark_name
from ottla.tables.job import CHANGE_COLUMN, OP_COLUMN, REASON_COLUMN, BadJob, Change

_PARSED: Final = "ottla_parsed"
_EVENT: Final = "ottla_event"
_IMAGE: Final = "ottla_image"
_CORRUPT: Final = "ottla_corrupt"
_DELETE: Final = "d"
_WRITES: Final = ("c", "r", "u")


def decode_debezium(rows: DataFrame, schema: StructType, kept: list[str]) -> DataFrame:
    """Return the columns of ``schema``, those of ``rows`` in ``kept``, and the reason.

    ``ottla_change`` says what the event does to its row, and ``ottla_op`` is its operation.
    """
    event = StructType(
        [
            StructField("before", schema),
            StructField("after", schema),
            StructField("op", StringType()),
            StructField("ts_ms", LongType()),
        ]
    )
    whole = StructType(
        [*event.fields, StructField("payload", event), StructField(_CORRUPT, StringType())]
    )
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    bare = F.struct(*(F.col(f"{_PARSED}.{name}").alias(name) for name in event.names))
    parsed = rows.withColumn(_PARSED, F.from_json(text, whole, options))
    parsed = parsed.withColumn(_EVENT, F.coalesce(F.col(f"{_PARSED}.payload"), bare))
    wanted = schema.simpleString().removeprefix("struct<").removesuffix(">")
    misread = F.when(F.get_json_object(text, "$").isNull(), F.lit("the value is not JSON")).when(
        F.col(f"{_PARSED}.{_CORRUPT}").isNotNull(),
        F.lit(f"the change event does not fit the schema: {wanted}"),
    )
    return _rows_of(parsed, schema.names, kept, misread)


def registry_events(decoded: DataFrame, kept: list[str]) -> DataFrame:
    """Return the same as `decode_debezium` for events that a registry's schema has decoded.

    ``decoded`` has the columns of the event (``before``, ``after``, ``op``), those in ``kept`` and
    the reason of a value that cannot be decoded. The columns of the table are those of ``after``.

    Raises:
        BadJob: the schema is not that of a change event.
    """
    after = decoded.schema["after"].dataType if "after" in decoded.columns else None
    if not isinstance(after, StructType) or not {"before", "op"} <= {*decoded.columns}:
        raise BadJob(
            "value.format debezium: the registry's schema is not that of a change event: it needs "
            f"before, after and op, and has {', '.join(decoded.columns[: -len(kept) - 1])}"
        )
    event = F.struct("before", "after", "op")
    return _rows_of(decoded.withColumn(_EVENT, event), after.names, kept, F.col(REASON_COLUMN))


def _rows_of(events: DataFrame, names: list[str], kept: list[str], misread: Column) -> DataFrame:
    op = F.col(f"{_EVENT}.op")
    image = F.when(op == _DELETE, F.col(f"{_EVENT}.before")).otherwise(F.col(f"{_EVENT}.after"))
    imaged = events.withColumn(_IMAGE, image)
    return imaged.select(
        *(F.col(f"{_IMAGE}.{spark_name(name)}").alias(name) for name in names),
        *kept,
        op.alias(OP_COLUMN),
        _change(op).alias(CHANGE_COLUMN),
        _reason(misread, op).alias(REASON_COLUMN),
    )


def _change(op: Column) -> Column:
    return (
        F.when(F.col("value").isNull(), F.lit(Change.NONE.value))
        .when(op == _DELETE, F.lit(Change.DELETE.value))
        .otherwise(F.lit(Change.UPSERT.value))
    )


def _reason(misread: Column, op: Column) -> Column:
    """Return why an event is bad; a null value, which follows a delete, is not."""
    return F.when(F.col("value").isNull(), F.lit(None).cast("string")).otherwise(
        F.coalesce(
            misread,
            F.when(op.isNull(), F.lit("the value is not a change event of Debezium: it has no op")),
            F.when(
                ~op.isin(*_WRITES, _DELETE),
                F.concat(F.lit("the operation of the change event is not supported: "), op),
            ),
            F.when(
                F.col(_IMAGE).isNull(),
                F.concat(F.lit("the change event has no row for its operation "), op),
            ),
        )
    )
