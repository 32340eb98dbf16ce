"""Decides how an existing table takes rows with other columns. Pure; needs no running Spark.

A column that the table does not have is added. A column that the rows do not have is null in new
rows. A narrower type is converted; a wider one widens the column if the format can
(``int`` -> ``bigint``, ``float`` -> ``double``, more digits of a decimal). Everything else is a
misfit: the job stops, or the records whose value cannot be converted become dead letters.
"""

from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from ottla.formats.sql_names import spark_name
from ottla.tables.job import TableFormat

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_REAL = (FloatType, DoubleType)


class ColumnType(msgspec.Struct, frozen=True):
    """A column, or a field of a struct as a path, with its type in SQL."""

    path: tuple[str, ...]
    type: str

    @property
    def name(self) -> str:
        """The name for SQL."""
        return ".".join(spark_name(each) for each in self.path)


class Misfit(msgspec.Struct, frozen=True):
    """A column whose type the table cannot take."""

    column: str
    rows: str
    table: str
    path: tuple[str, ...] = ()
    """The column, and the fields of structs in it."""
    sql: str = ""
    """The type in the table, for SQL."""

    def __str__(self) -> str:
        return f"column {self.column} is {self.rows} in the job and {self.table} in the table"


class SchemaChange(msgspec.Struct, frozen=True):
    """What to do before rows are written."""

    add: tuple[ColumnType, ...] = ()
    widen: tuple[ColumnType, ...] = ()
    misfits: tuple[Misfit, ...] = ()


def compare(table: StructType, rows: StructType, format: TableFormat) -> SchemaChange:
    """Return the difference between a table and the rows to be written to it.

    Names are compared as Spark does, without case.
    """
    add: list[ColumnType] = []
    widen: list[ColumnType] = []
    misfits: list[Misfit] = []

    def fields(mine: StructType, theirs: StructType, above: tuple[str, ...]) -> None:
        known = {each.name.lower(): each for each in mine.fields}
        for field in theirs.fields:
            path = (*above, field.name)
            there = known.get(field.name.lower())
            if there is None:
                add.append(ColumnType(path, sql_type(field.dataType)))
            else:
                types(there, field, path)

    def types(there: StructField, field: StructField, path: tuple[str, ...]) -> None:
        mine, theirs = there.dataType, field.dataType
        if isinstance(mine, StructType) and isinstance(theirs, StructType):
            # A parquet table has no schema of its own, so nothing has to be added to it.
            fields(mine, theirs, path)
        elif is_wider(theirs, mine):
            if format is TableFormat.ICEBERG:
                widen.append(ColumnType(path, sql_type(theirs)))
            else:
                misfits.append(_misfit(path, theirs, mine))
        elif mine.simpleString() != theirs.simpleString() and not is_wider(mine, theirs):
            misfits.append(_misfit(path, theirs, mine))

    fields(table, rows, ())
    return SchemaChange(tuple(add), tuple(widen), tuple(misfits))


def _misfit(path: tuple[str, ...], rows: DataType, table: DataType) -> Misfit:
    texts = rows.simpleString(), table.simpleString()
    return Misfit(".".join(path), *texts, path, sql_type(table))


def sql_type(type: DataType) -> str:
    """Return a type for SQL, with the names of its fields quoted."""
    if isinstance(type, StructType):
        fields = (f"{spark_name(each.name)}: {sql_type(each.dataType)}" for each in type.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(type, ArrayType):
        return f"array<{sql_type(type.elementType)}>"
    if isinstance(type, MapType):
        return f"map<{sql_type(type.keyType)}, {sql_type(type.valueType)}>"
    return type.simpleString()


def is_wider(one: DataType, other: DataType) -> bool:
    """Return whether ``one`` holds every value of ``other``, and more."""
    for family in (_WHOLE, _REAL):
        if isinstance(one, family) and isinstance(other, family):
            return family.index(type(one)) > family.index(type(other))
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        return one.scale == other.scale and one.precision > other.precision
    return False


def alterations(target: str, change: SchemaChange) -> list[str]:
    """Return the statements that change a table of a catalog, or of Delta."""
    found = []
    if change.add:
        columns = ", ".join(f"{each.name} {each.type}" for each in change.add)
        found.append(f"ALTER TABLE {target} ADD COLUMNS ({columns})")
    found += [
        f"ALTER TABLE {target} ALTER COLUMN {each.name} TYPE {each.type}" for each in change.widen
    ]
    return found


def explained(misfits: Sequence[Misfit]) -> str:
    """Return the message of a job that stops at misfits."""
    return (
        "; ".join(map(str, misfits))
        + ": change the job's columns, or set misfits: dead-letters to write the records that do "
        "not fit to the dead-letter topic"
    )


def aligned_names(table: StructType, columns: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the table's columns in order, each with the column of the rows for it, if any."""
    mine = {each.lower(): each for each in columns}
    return [(each.name, mine.get(each.name.lower())) for each in table.fields]
