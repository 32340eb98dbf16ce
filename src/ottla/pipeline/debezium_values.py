"""Decodes Debezium's change events in JSON: the row after a change, or before a delete.

    {"before": {"id": 1}, "after": {"id": 1, "amount": 2.5}, "op": "u", "ts_ms": 1700000000000}

or the same below ``payload``, beside ``schema``, as Kafka Connect's JSON converter writes it with
its schema. ``op`` is c (create), r (read, in a snapshot), u (update) or d (delete). The null value
that follows a delete, for compaction, changes nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.pipeline.table_job import CHANGE_COLUMN, OP_COLUMN, REASON_COLUMN, Change

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
    op = F.col(f"{_EVENT}.op")
    image = F.when(op == _DELETE, F.col(f"{_EVENT}.before")).otherwise(F.col(f"{_EVENT}.after"))
    parsed = parsed.withColumn(_IMAGE, image)
    return parsed.select(
        *(F.col(f"{_IMAGE}.{name}").alias(name) for name in schema.names),
        *kept,
        op.alias(OP_COLUMN),
        _change(op).alias(CHANGE_COLUMN),
        _reason(text, op, schema).alias(REASON_COLUMN),
    )


def _change(op: Column) -> Column:
    return (
        F.when(F.col("value").isNull(), F.lit(Change.NONE.value))
        .when(op == _DELETE, F.lit(Change.DELETE.value))
        .otherwise(F.lit(Change.UPSERT.value))
    )


def _reason(text: Column, op: Column, schema: StructType) -> Column:
    wanted = schema.simpleString().removeprefix("struct<").removesuffix(">")
    return (
        F.when(F.col("value").isNull(), F.lit(None).cast("string"))
        .when(F.get_json_object(text, "$").isNull(), F.lit("the value is not JSON"))
        .when(
            F.col(f"{_PARSED}.{_CORRUPT}").isNotNull(),
            F.lit(f"the change event does not fit the schema: {wanted}"),
        )
        .when(op.isNull(), F.lit("the value is not a change event of Debezium: it has no op"))
        .when(
            ~op.isin(*_WRITES, _DELETE),
            F.concat(F.lit("the operation of the change event is not supported: "), op),
        )
        .when(
            F.col(_IMAGE).isNull(),
            F.concat(F.lit("the change event has no row for its operation "), op),
        )
    )
