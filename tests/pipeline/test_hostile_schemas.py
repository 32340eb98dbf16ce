"""Schemas and values that would take unbounded time or memory, or be taken for SQL."""

import json
import time

import duckdb
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from ottla.formats.avro_values import AvroValues
from ottla.formats.json_schema import json_columns, json_fields
from ottla.formats.protobuf_values import ProtobufValues, descriptor_set
from ottla.formats.record_values import BadValues, Format
from ottla.formats.registry_client import RegisteredSchema
from ottla.formats.registry_values import _Avro
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.sql_names import duckdb_name, table_name
from ottla.spark.views import statements
from ottla.sql.topics import _fields_of, _is_json
from ottla.sql.value_columns import Part, view_of
from ottla.tables.job import BadJob
from ottla.tables.topic_tables import key_expressions

SECONDS_MAX = 20  # without bounds these take hours, or all memory


def record(kind: object, name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "a", "type": kind}]})


def varint(number: int) -> bytes:
    rest, out = ((number << 1) ^ (number >> 63)) & (2**64 - 1), b""
    while rest > 0x7F:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


def doubling(levels: int) -> str:
    """Return a record of 2**levels columns in a few lines."""
    kind: object = "int"
    for level in reversed(range(levels)):
        fields = [{"name": "x", "type": kind}]
        fields.append({"name": "y", "type": "int" if kind == "int" else f"R{level + 1}"})
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    return json.dumps(kind)


EMPTY = {"type": "record", "name": "E", "fields": []}
NOTHING = {"type": "record", "name": "N", "fields": [{"name": "e", "type": EMPTY}]}
RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "R"]}]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record({"type": "array", "items": EMPTY}), "have no bytes"),
        (record({"type": "array", "items": NOTHING}), "have no bytes"),
        (record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "no bytes"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 500}), "precision"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": -1}), "Avro schema"),
        (json.dumps(RECURSIVE), "recursive"),
        (doubling(40), "more than 10000 columns"),
        ("[" * 100_000, "not an Avro schema"),
    ],
    ids=["empty", "nested", "fixed", "digits", "negative", "recursive", "doubling", "deep"],
)
def test_hostile_avro_schema_is_rejected(schema: str, reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(BadSchema, match=reason):
        AvroValues(schema)
    assert time.monotonic() - began < SECONDS_MAX


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": "int"}, varint(2**60) + b"\2\0"),
        ({"type": "array", "items": "int"}, varint(-(2**62)) + varint(5) + b"\2\0"),
        ({"type": "map", "values": "int"}, varint(2**60) + b"\2a\2\0"),
        ("string", varint(2**62) + b"x"),
        ("bytes", varint(-5) + b"x" * 20),
        ({"type": "fixed", "name": "F", "size": 2**50}, b"x"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, varint(2**40)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
            varint(3_000_000) + b"\x7f" * 3_000_000,
        ),
    ],
    ids=["count", "negative block", "map", "string", "length", "fixed", "enum", "decimal"],
)
def test_hostile_avro_value_is_rejected(kind: object, value: bytes) -> None:
    values = AvroValues(record(kind))
    began = time.monotonic()
    with pytest.raises(ValueError, match="not Avro of this schema"):
        values.decode(value)
    assert time.monotonic() - began < SECONDS_MAX


class _NoReferences:
    def referenced(self, schema: RegisteredSchema) -> dict[str, str]:
        return {}


def test_recursive_schema_of_a_writer_is_rejected() -> None:
    """Fastavro skips a field that the reader lacks by recursion in C, and would crash."""
    fields = [{"name": "id", "type": "int"}, {"name": "n", "type": ["null", "R"]}]
    own = {"type": "record", "name": "R", "fields": fields[:1]}
    registry = _NoReferences()
    reader = _Avro(RegisteredSchema(1, "AVRO", json.dumps(own)), registry)
    written = json.dumps({**own, "fields": fields})
    with pytest.raises(BadSchema, match="recursive"):
        reader.writer(RegisteredSchema(2, "AVRO", written), registry)


def test_hostile_protobuf_descriptor_is_rejected() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    for level in range(40):
        message = file.message_type.add(name=f"M{level}")
        for number in (1, 2):
            field = message.field.add(name=f"f{number}", number=number, label=1, type=5)
            if level < 39:
                field.type, field.type_name = 11, f".p.M{level + 1}"
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    began = time.monotonic()
    with pytest.raises(BadSchema, match="more than 10000 columns"):
        ProtobufValues(content, "p.M0")
    assert time.monotonic() - began < SECONDS_MAX


@pytest.mark.parametrize("name", ["google/protobuf/../../os.proto", "google/protobuf/.x.proto"])
def test_protobuf_import_names_no_other_module(name: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=[name])
    with pytest.raises(BadSchema, match="not among its references"):
        descriptor_set({"a.proto": file.SerializeToString()})


def test_protobuf_value_of_any_depth_is_rejected() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="p", syntax="proto3")
    file.message_type.add(name="M").field.add(name="s", number=1, label=1, type=9)
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(ValueError, match="not a M"):
        ProtobufValues(content, "p.M").decode(
            b"\x13" * 1_000_000
        )  # groups that begin and never end


def test_hostile_json_schema_is_rejected() -> None:
    levels = {
        f"d{level}": {
            "type": "object",
            "properties": {each: {"$ref": f"#/defs/d{level + 1}"} for each in "xy"},
        }
        for level in range(20)
    }
    declared = {**levels["d0"], "defs": levels | {"d20": {"type": "string", "pattern": "(a+)+$"}}}
    began = time.monotonic()
    with pytest.raises(BadSchema, match="more than 10000 columns"):
        json_columns(declared)
    assert time.monotonic() - began < SECONDS_MAX


def test_patterns_of_a_json_schema_are_not_evaluated() -> None:
    declared = {"type": "object", "properties": {"s": {"type": "string", "pattern": "(a+)+$"}}}
    columns = json_columns(declared)
    assert json_fields({"s": "a" * 50_000 + "!"}, columns)["s"]


def test_infinite_number_is_no_integer() -> None:
    columns = pa.schema([("n", pa.int64())])
    with pytest.raises(ValueError, match="field n is Infinity"):
        json_fields({"n": json.loads("1e999")}, columns)


def test_deeply_nested_json_is_not_json() -> None:
    assert not _is_json(b"[" * 200_000)


NAMES = ['x"; drop table t; --', "it's", "a`b", "new\nline", "ünï", "b.c", "$.e", "~/f", '"', "\\"]


@pytest.mark.parametrize("names", [*([name] for name in NAMES), ["a", "A"], ["", "b"]], ids=repr)
def test_names_of_fields_are_never_taken_for_sql(names: list[str]) -> None:
    document = json.dumps({name: number for number, name in enumerate(names, 1)}).encode()
    row = {"key": None, "topic": "t", "partition": 0, "offset": 4, "timestamp": None}
    columns = {**{each: [it] for each, it in row.items()}, "timestampType": [0], "headers": [None]}
    with duckdb.connect(":memory:") as db:
        db.register("source", pa.table({**columns, "value": pa.array([document], pa.binary())}))
        fields = _fields_of([document], db)
        part = Part("value", Format.JSON, fields or (), is_sampled=True)
        view = view_of("source", "it's\"t", Part("key", Format.RAW), part, BadValues.FAIL)
        found = db.execute(f"SELECT * FROM ({view})")
        shown = [each[0] for each in found.description][8:]
        # Names that differ in their case, or are empty, are left in the value.
        expected = [name for name in names if name not in ("A", "")]
        assert shown == expected
        assert found.fetchall()[0][8:] == tuple(names.index(each) + 1 for each in expected)


def test_statements_of_a_catalog_quote_what_they_contain() -> None:
    options = {"kafka.sasl.jaas.config": "it's \\ '); DROP TABLE t; --", "we`ird": "x\ny"}
    (statement,) = statements({"orders_v2": "orders.v2"}, options)
    assert statement == (
        "CREATE TABLE IF NOT EXISTS `orders_v2` USING ottla OPTIONS ('kafka.sasl.jaas.config' "
        "'it\\'s \\\\ \\'); DROP TABLE t; --', 'we`ird' 'x\ny', 'subscribe' 'orders.v2');"
    )


@pytest.mark.parametrize(
    "schema",
    [
        "id bigint) in (select max(id) from secrets",
        "id bigint) or exists(select id from secrets where (true",
        "a string') , reflect('java.lang.System', 'exit",
        "a`; drop table t; -- string",
        "a string, b int) , c (d",
    ],
)
def test_setting_of_a_topic_adds_no_sql_to_the_job(schema: str) -> None:
    """The user who may alter a topic is not the user whose Spark job reads its settings."""
    with pytest.raises(BadJob, match=r"is not a column"):
        key_expressions(schema)


@pytest.mark.parametrize("name", ["../x", "a/b", "a`; drop", "a.b", "ünï\n"])
def test_table_of_a_topic_is_a_plain_name(name: str) -> None:
    assert table_name(name).replace("_", "a").isalnum()
    assert duckdb_name('a"b') == '"a""b"'
