"""Decides how an existing table takes rows with other columns. Pure; needs no running Spark.

A column that the table does not have is added. A column that the rows do not have is null in new
rows. A narrower type is converted; a wider one widens the column if the format can
(``int`` -> ``bigint``, ``float`` -> ``double``, more digits of a decimal). Everything else is a
misfit: the job stops, or the records whose value cannot be converted become dead letters.
"""

from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from ottla.pipeline.merge_plan import quoted
from ottla.pipeline.table_job import TableFormat

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_REAL = (FloatType, DoubleType)


class ColumnType(msgspec.Struct, frozen=True):
    """A column, or a field of a struct as a path, with its type in SQL."""

    path: tuple[str, ...]
    type: str

    @property
    def name(self) -> str:
        """The name for SQL."""
        return ".".join(quoted(each) for each in self.path)


class Misfit(msgspec.Struct, frozen=True):
    """A column whose type the table cannot take."""

    column: str
    rows: str
    table: str

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
                add.append(ColumnType(path, field.dataType.simpleString()))
            else:
                types(there, field, path)

    def types(there: StructField, field: StructField, path: tuple[str, ...]) -> None:
        mine, theirs = there.dataType, field.dataType
        if isinstance(mine, StructType) and isinstance(theirs, StructType):
            # A parquet table has no schema of its own, so nothing has to be added to it.
            fields(mine, theirs, path)
        elif is_wider(theirs, mine):
            if format is TableFormat.ICEBERG:
                widen.append(ColumnType(path, theirs.simpleString()))
            else:
                misfits.append(Misfit(".".join(path), theirs.simpleString(), mine.simpleString()))
        elif mine.simpleString() != theirs.simpleString() and not is_wider(mine, theirs):
            misfits.append(Misfit(".".join(path), theirs.simpleString(), mine.simpleString()))

    fields(table, rows, ())
    return SchemaChange(tuple(add), tuple(widen), tuple(misfits))


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
