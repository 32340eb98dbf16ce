"""The columns of a record in Spark, and the choice of them that a reader returns.

The names and types are those of Spark's own Kafka source. A user's schema selects columns: only
those are decoded and sent to Spark, in its order.
"""

import difflib
from collections.abc import Container
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = "headers"
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


class BadSchema(ValueError):
    """A schema that does not fit records; the message names the column."""


def full_schema(include_headers: bool) -> StructType:
    """Return all columns; headers only with ``include_headers``."""
    names = [each for each in COLUMNS if include_headers or each != HEADERS]
    return StructType([StructField(each, COLUMNS[each]) for each in names])


def chosen_columns(schema: StructType, decoded: Container[str] = frozenset()) -> tuple[str, ...]:
    """Return the columns of a schema, in its order. Those in ``decoded`` may have any type.

    Raises:
        BadSchema: it is empty, or has a duplicate, unknown or wrongly typed column.
    """
    names: list[str] = []
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise BadSchema(f"no column {field.name!r}{_hint(field.name)}")
        if field.name in names:
            raise BadSchema(f"column {field.name!r} appears twice")
        if field.name not in decoded and _bare(field.dataType) != _bare(kind):
            raise BadSchema(
                f"column {field.name!r} is {kind.simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it with DataFrame operations"
            )
        names.append(field.name)
    if not names:
        raise BadSchema(f"the schema has no column; choose from {', '.join(COLUMNS)}")
    return tuple(names)


def _bare(kind: DataType) -> str:
    return kind.simpleString()  # ignores nullability: a column may be declared NOT NULL


def _hint(name: str) -> str:
    lowered = {each.lower(): each for each in COLUMNS}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    did_you_mean = f"; did you mean {lowered[near[0]]!r}?" if near else "."
    return f"{did_you_mean} Columns are {', '.join(COLUMNS)}"
