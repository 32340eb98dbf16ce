"""Hostile names in SQL: a name is one token of its statement, whatever it contains."""

import json
import re
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from ottla.formats.record_values import BadValues, Format
from ottla.formats.sql_names import (
    BadName,
    duckdb_name,
    duckdb_text,
    spark_name,
    spark_table,
    spark_text,
    table_parts,
)
from ottla.spark.views import statements as view_statements
from ottla.sql.value_columns import Part, view_of
from ottla.tables.job import BadJob, MaintenanceSpec, TableFormat, parse_job
from ottla.tables.maintenance import statements
from ottla.tables.schema_change import ColumnType, SchemaChange, alterations, sql_type
from ottla.tables.targets import merge_statement

HOSTILE = (
    "a` b",
    "`",
    "``; DROP TABLE t; --",
    "a'b",
    "a\\",
    "\\'; DROP TABLE t; --",
    'a"b',
    '""; DROP TABLE t; --',
    "a.b",
    "a;b",
    "a\nb",
    "-- x\n/* y",
    "*/ $$ {fn} ?",
    "日本 ✓ \u202e",
    " ",
)
NAMES = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
# Spark's lexer: identifiers in backticks, strings with backslashes, comments, or one character.
SPARK = re.compile(
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*|.", re.DOTALL
)


def shape(statement: str, *names: str) -> list[str]:
    """Return the tokens of a statement for Spark, with N for a name that was put into it."""
    known = {spark_name(name) for name in names} | {spark_text(name) for name in names}
    return ["N" if token in known else token for token in SPARK.findall(statement)]


def every_statement(a: str, b: str) -> Iterator[tuple[str, ...]]:
    """Yield each statement for Spark with two names, and the tokens that hold them."""
    table = f"{spark_name('lake')}.{spark_name(a)}"
    yield merge_statement(table, "changes", [a], [a, b], [a, b]), a, b
    column = StructType([StructField(b, ArrayType(MapType(StringType(), IntegerType())))])
    added = ColumnType((a, b), sql_type(column))
    for text in alterations(table, SchemaChange(add=(added,), widen=(added,))):
        yield text, a, b
    for format in (TableFormat.DELTA, TableFormat.ICEBERG):
        for text in statements(MaintenanceSpec(), format, f"{table}.{spark_name(b)}", 8, 0):
            inner = f"{spark_name(a)}.{spark_name(b)}"
            yield text, a, b, inner
    for text in view_statements({a: b}, {b: a}):
        yield text, a, b


@given(NAMES, NAMES)
@example("\\", "x")
@example("a\\", "'; DROP TABLE t; --")
def test_names_do_not_change_the_structure_of_statements_for_spark(a: str, b: str) -> None:
    assume(a.lower() != b.lower())
    found = list(every_statement(a, b))
    plain = list(every_statement("aa", "bb"))
    for (text, *names), (other, *others) in zip(found, plain, strict=True):
        assert shape(text, *names) == shape(other, *others)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_quoted_parts_of_a_table_name_are_read_back(parts: list[str]) -> None:
    quoted = ".".join(map(spark_name, parts))
    assert table_parts(quoted) == tuple(parts)
    assert spark_table(quoted) == quoted


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "`", "a`b", "`a", "`a`b", "a.`b", "``", "`a``", "a.``"]
)
def test_table_name_with_a_lone_backtick_or_an_empty_part_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        spark_table(name)
    declared = {"topic": "t", "checkpoint": "/c", "table": {"format": "iceberg", "name": name}}
    with pytest.raises(BadJob, match=r"table\.name"):
        parse_job(declared)


@given(NAMES)
@example("\0")
def test_names_and_texts_are_one_token_of_duckdb(name: str) -> None:
    if "\0" in name:
        for make in (duckdb_name, duckdb_text):
            with pytest.raises(BadName):
                make(name)
        return
    with duckdb.connect() as db:
        (row,) = db.execute(f"SELECT {duckdb_text(name)} AS {duckdb_name(name)}").fetchall()
        assert row == (name,)
        assert [column[0] for column in db.description] == [name]


@given(NAMES.filter(lambda name: "\0" not in name), NAMES.filter(lambda name: "\0" not in name))
def test_view_of_a_topic_with_hostile_names_shows_its_fields(topic: str, field: str) -> None:
    key = Part("key", Format.TEXT)
    value = Part("value", Format.JSON, ((field, "VARCHAR"),))
    with duckdb.connect() as db:
        record = json.dumps({field: "x"}).encode()
        row = f'SELECT {duckdb_text(topic)} AS topic, 0 AS partition, 0 AS "offset"'
        types = 'now() AS timestamp, 0 AS "timestampType", NULL AS headers'
        db.execute(
            f"CREATE TABLE {duckdb_name(topic)} AS {row}, {types}, 'k'::BLOB AS key, "
            "?::BLOB AS value",
            [record],
        )
        query = view_of(topic, topic, key, value, BadValues.NULL)
        assert len(db.extract_statements(query)) == 1
        (found,) = db.execute(query).fetchall()
        assert found[-1] == "x"
