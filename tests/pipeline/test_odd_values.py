"""Odd JSON values: SQL, tables and `ottla consume` show the same value, or none does.

Each row of `TABLE` is a type, the JSON of one field, and what SQL and tables read: a value, or
`BAD` for one that does not fit. Where they differ on purpose, the row has both.
"""

import datetime
from decimal import Decimal
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from source_cluster import SourceCluster
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.formats.record_values import BadValues, Format
from ottla.sql.topics import declared_part
from ottla.sql.value_columns import Part, view_of
from ottla.tables.job import parse_job
from ottla.tables.value_decoding import decode

BAD: Final = "does not fit"
NAN: Final = "not a number"


class Both:
    """A deliberate difference."""

    def __init__(self, sql: object, table: object) -> None:
        self.sql, self.table = sql, table


UTC = datetime.UTC
MOMENT = datetime.datetime(2024, 1, 31, 12, 0)
TABLE: Final[list[tuple[str, str, Any]]] = [
    ("bigint", "7", 7),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bigint", "null", None),
    ("bigint", '"7"', BAD),
    ("bigint", '"oops"', BAD),
    ("bigint", '""', BAD),
    ("bigint", "2.5", BAD),
    ("bigint", "2.0", BAD),
    ("bigint", "1e3", BAD),
    ("bigint", "9223372036854775808", BAD),
    ("bigint", "123456789012345678901234567890", BAD),
    ("bigint", "true", BAD),
    ("bigint", "NaN", BAD),
    ("bigint", '{"a": 1}', BAD),
    ("bigint", "[1]", BAD),
    ("int", "3000000000", BAD),
    ("smallint", "40000", BAD),
    ("tinyint", "-128", -128),
    ("tinyint", "300", BAD),
    ("double", "1", 1.0),
    ("double", "1e3", 1000.0),
    ("double", "12345678901234567890", 12345678901234567890.0),
    ("double", '"1.5"', BAD),
    ("double", '"NaN"', NAN),
    ("double", "NaN", BAD),
    ("double", "Infinity", BAD),
    ("double", '"-Infinity"', float("-inf")),
    ("double", '"INF"', BAD),
    ("double", "true", BAD),
    ("float", "0.5", 0.5),
    ("float", '"0.5"', BAD),
    ("boolean", "true", True),
    ("boolean", '"true"', BAD),
    ("boolean", "1", BAD),
    ("string", '"text"', "text"),
    ("string", '"a\\u0041\\n\\"b"', 'aA\n"b'),
    ("string", "5", "5"),
    ("string", "true", "true"),
    ("string", '{"a": [1, null]}', '{"a":[1,null]}'),
    ("string", "NaN", BAD),
    ("date", '"2024-01-31"', datetime.date(2024, 1, 31)),
    ("date", '"2024-02-30"', BAD),
    ("date", '"soon"', BAD),
    ("date", "true", BAD),
    ("timestamp", '"2024-01-31T12:00:00"', MOMENT),
    ("timestamp", '"2024-01-31T12:00:00Z"', MOMENT),
    ("timestamp", '"2024-01-31T14:00:00+02:00"', MOMENT),
    ("timestamp", '"2024-01-31T12:00:00.000"', MOMENT),
    ("timestamp", '"2024-13-31T12:00:00"', BAD),
    ("timestamp", "true", BAD),
    # Spark reads seconds since 1970; milliseconds would be a date in the far future.
    ("timestamp", "1706702400", Both(BAD, MOMENT)),
    ("decimal(5,2)", "1.25", Decimal("1.25")),
    ("decimal(5,2)", "7", Decimal("7.00")),
    ("decimal(5,2)", "1.239", Decimal("1.24")),
    ("decimal(5,2)", '"1.25"', Decimal("1.25")),
    ("decimal(5,2)", "12345.1", BAD),
    ("decimal(5,2)", '"x"', BAD),
    ("decimal(5,2)", "true", BAD),
    ("array<bigint>", "[1, null]", [1, None]),
    ("array<bigint>", "[1, 2.5]", BAD),
    ("array<bigint>", '["1"]', BAD),
    ("struct<a: bigint>", '{"a": 1, "b": 2}', {"a": 1}),
    ("struct<a: bigint>", "{}", {"a": None}),
    ("struct<a: bigint>", '{"a": "1"}', BAD),
    ("struct<a: bigint>", "[1]", BAD),
    ("map<string, bigint>", '{"k": 1}', {"k": 1}),
    ("map<string, bigint>", '{"k": 1.5}', BAD),
    # DuckDB finds the first of two equal names, Jackson keeps the last.
    ("bigint", '1, "x": 2', Both(1, 2)),
    ("bigint not null", "1", 1),
    ("bigint not null", "null", BAD),
]
DUCKDB: Final = {
    "string": "varchar",
    "array<bigint>": "bigint[]",
    "struct<a: bigint>": "struct(a bigint)",
    "map<string, bigint>": "map(varchar, bigint)",
}
IDS = [f"{kind} {text}" for kind, text, _ in TABLE]
SOURCE = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
)


def document(text: str) -> bytes:
    return f'{{"x": {text}}}'.encode()


def shown(value: object) -> object:
    """Return a value so that it can be compared."""
    if isinstance(value, float) and value != value:
        return NAN
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value.asDict() if hasattr(value, "asDict") else value


def by_sql(kind: str, text: str, bad: BadValues) -> object:
    part = declared_part("value", f"x {DUCKDB.get(kind, kind)}")
    source = {
        "key": pa.array([None], pa.binary()),
        "value": pa.array([document(text)], pa.binary()),
        "topic": pa.array(["t"]),
        "partition": pa.array([3], pa.int32()),
        "offset": pa.array([41], pa.int64()),
        "timestamp": pa.array([0], pa.timestamp("us")),
        "timestampType": pa.array([0], pa.int32()),
        "headers": pa.array([None], pa.list_(pa.int32())),
    }
    with duckdb.connect(":memory:") as db:
        db.register("source", pa.table(source))
        view = view_of("source", "t", Part("key", Format.RAW), part, bad)
        return shown(db.execute(f"SELECT x FROM ({view})").fetchall()[0][0])


@pytest.mark.parametrize(("kind", "text", "expected"), TABLE, ids=IDS)
def test_sql_reads_a_value_that_fits_and_names_one_that_does_not(
    kind: str, text: str, expected: object
) -> None:
    expected = expected.sql if isinstance(expected, Both) else expected
    if expected != BAD:
        assert by_sql(kind, text, BadValues.FAIL) == expected
        return
    with pytest.raises(duckdb.Error, match=r"t-3 at offset 41: field x is "):
        by_sql(kind, text, BadValues.FAIL)
    assert by_sql(kind, text, BadValues.NULL) is None


def test_table_reads_what_sql_reads(spark: SparkSession) -> None:
    wrong = []
    for kind in dict.fromkeys(each for each, _, _ in TABLE):
        cases = [(text, expected) for each, text, expected in TABLE if each == kind]
        rows = [(None, document(text), "t", 0, at, None) for at, (text, _) in enumerate(cases)]
        job = parse_job(
            {
                "topic": "t",
                "bootstrap": "localhost:1",
                "value": {"format": "json", "schema": f"x {kind}"},
                "table": {"format": "parquet", "path": "/tmp/none"},
            }
        )
        found = decode(spark.createDataFrame(rows, SOURCE), job).orderBy("offset").collect()
        for row, (text, expected) in zip(found, cases, strict=True):
            expected = expected.table if isinstance(expected, Both) else expected
            value = BAD if row["ottla_reason"] else shown(row["x"])
            if value != expected:
                wrong.append((kind, text, value, expected))
    assert wrong == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"[1]", "the value is JSON, but not an object"),
        (b" 5", "the value is JSON, but not an object"),
        (b"null", "the value is JSON, but not an object"),
        (b"{", "the value is not JSON"),
        (b"\xff", "the value is not JSON"),
    ],
)
def test_sql_names_a_value_that_is_no_object(value: bytes, reason: str) -> None:
    part = declared_part("value", "x bigint")
    columns = {"value": pa.array([value], pa.binary())}
    more = {"key": None, "topic": "t", "partition": 0, "offset": 4, "timestamp": None}
    table = pa.table({**{each: [it] for each, it in more.items()}, **columns})
    table = table.append_column("timestampType", pa.array([0])).append_column(
        "headers", pa.array([None], pa.string())
    )
    with duckdb.connect(":memory:") as db:
        db.register("source", table)
        view = view_of("source", "t", Part("key", Format.RAW), part, BadValues.FAIL)
        with pytest.raises(duckdb.Error, match=f"t-0 at offset 4: {reason}"):
            db.execute(f"SELECT x FROM ({view})").fetchall()


def test_consume_prints_odd_values_as_they_are_and_sql_names_the_first(
    cluster: SourceCluster,
) -> None:
    topic = cluster.create()
    documents = [document(text).decode() for _, text, _ in TABLE]
    cluster.produce(topic, documents)
    at = ["-b", cluster.node.bootstrap]
    done = CliRunner().invoke(app, ["consume", topic, *at, "--exit"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == documents
    done = CliRunner().invoke(
        app, ["sql", *at, "--schema", "x bigint", f'select count(x) from "{topic}"']
    )
    assert done.exit_code == 1
    assert f'{topic}-0 at offset 3: field x is "7", not an integer' in done.stderr
