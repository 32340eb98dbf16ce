"""Schemas of a registry in the source and the sink of Spark, without a JVM, and in table jobs."""

import base64
import datetime
import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2
from registry_server import RegistryServer, run_registry
from source_cluster import SourceCluster, read_all
from tests.patience import SECONDS_MAX

from ottla.formats.protobuf_writer import declared_name, message_encoder, message_of
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.wire_format import framed
from ottla.spark.option_values import OptionError
from ottla.spark.options import SinkOptions, SourceOptions
from ottla.spark.rows import BadRow
from ottla.spark.sink_encoding import encode_batches
from ottla.spark.sink_task import SinkTask, Task
from ottla.spark.source import BatchReader
from ottla.spark.source_decoding import BadValue, source_schema
from ottla.tables.job import KEY_COLUMN, REASON_COLUMN, BadJob, TableJob, parse_job
from ottla.tables.value_decoding import KEY_REASON, _registry_values, decode_batch, decode_keys

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}

NO_ID = "it does not begin with a schema id, and the record has no header with one"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with run_registry() as server:
        yield server


def avro(schema: object, datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def read(cluster: SourceCluster, **options: object) -> list[dict[str, Any]]:
    parsed = SourceOptions.parse(cluster.options(**options))
    reader = BatchReader(parsed, source_schema(parsed))
    found = sorted(read_all(reader, reader.partitions()), key=lambda row: row["offset"])
    return [{"key": each["key"], "value": each["value"]} for each in found]


def produce(
    cluster: SourceCluster, topic: str, *records: tuple[bytes | None, bytes | None]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.node.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(SECONDS_MAX) == 0


def test_source_reads_all_versions_as_the_newest(
    cluster: SourceCluster, registry: RegistryServer
) -> None:
    topic = cluster.create()
    first = registry.add(f"{topic}-value", json.dumps(V1))
    second = registry.add(f"{topic}-value", json.dumps(V2))
    number = registry.add(f"{topic}-key", '"long"')
    produce(
        cluster,
        topic,
        (framed(number, avro("long", 7)), framed(first, avro(V1, {"id": 1}))),
        (None, framed(second, avro(V2, {"id": 2, "tags": {"a": "b"}}))),
        (None, None),
    )
    options = {"subscribe": topic, "schema__registry__url": registry.url}
    found = read(cluster, **options, valueFormat="registry", keyFormat="registry")
    assert found == [
        {"key": 7, "value": {"id": 1, "tags": []}},
        {"key": None, "value": {"id": 2, "tags": [("a", "b")]}},
        {"key": None, "value": None},
    ]


def test_bad_value_fails_with_its_offset_or_is_null(
    cluster: SourceCluster, registry: RegistryServer
) -> None:
    topic = cluster.create()
    number = registry.add(f"{topic}-value", json.dumps(V1))
    produce(cluster, topic, (None, framed(number, avro(V1, {"id": 1}))), (None, b"poison"))
    options = {
        "subscribe": topic,
        "schema__registry__url": registry.url,
        "valueFormat": "registry",
    }
    with pytest.raises(BadValue, match=f"{topic}-0 at offset 1: the value: not in the registry's"):
        read(cluster, **options)
    found = read(cluster, **options, badValues="null")
    assert [each["value"] for each in found] == [{"id": 1}, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "avro"}, "valueFormat"),
        ({"schema.registry.urll": "http://x"}, "unknown setting schema.registry.urll"),
        ({"valueSubject": "s"}, "valueSubject needs valueFormat=registry"),
    ],
)
def test_wrong_options_of_the_source_are_named(options: dict[str, str], message: str) -> None:
    base = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
    with pytest.raises(OptionError, match=message):
        SourceOptions.parse({**base, **options})


def test_missing_subject_is_named(cluster: SourceCluster, registry: RegistryServer) -> None:
    topic = cluster.create()
    options = {"subscribe": topic, "schema__registry__url": registry.url}
    with pytest.raises(OptionError, match=f"{topic}-value' is unknown"):
        read(cluster, **options, valueFormat="registry")


ROWS = pa.RecordBatch.from_pylist(
    [
        {"key": 1, "value": {"id": 1, "tags": ["a", None], "at": None}},
        {"key": None, "value": None},
    ],
    pa.schema(
        [
            ("key", pa.int64()),
            (
                "value",
                pa.struct(
                    [
                        ("id", pa.int64()),
                        ("tags", pa.list_(pa.string())),
                        ("at", pa.timestamp("us", "UTC")),
                    ]
                ),
            ),
        ]
    ),
)


@pytest.mark.parametrize("kind", ["avro", "json"])
@pytest.mark.parametrize("strategy", ["topic", "io.confluent.X.TopicRecordNameStrategy", "record"])
def test_sink_registers_and_source_reads_back(
    cluster: SourceCluster, registry: RegistryServer, kind: str, strategy: str
) -> None:
    topic = cluster.create()
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": cluster.node.bootstrap,
            "topic": topic,
            "valueFormat": kind,
            "keyFormat": "avro",
            "subjectNameStrategy": strategy,
            "schema.registry.url": registry.url,
        }
    )
    batches = encode_batches([ROWS], options.encoding, options.topic)
    SinkTask(options, Task("s", 0, 0)).write(batches)
    name = f"{topic}_value".replace("-", "_")
    subject = {"topic": f"{topic}-value", "record": name}.get(strategy, f"{topic}-{name}")
    assert subject in registry.subjects
    keys = {"topic": f"{topic}-key", "record": "long"}.get(strategy, f"{topic}-long")
    found = read(
        cluster,
        subscribe=topic,
        schema__registry__url=registry.url,
        valueFormat="registry",
        valueSubject=subject,
        keyFormat="registry",
        keySubject=keys,
    )
    expected = {"id": 1, "tags": ["a", None], "at": None}
    assert found == [{"key": 1, "value": expected}, {"key": None, "value": None}]


MESSAGE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("inner", pa.struct([("ok", pa.bool_()), ("raw", pa.binary())])),
    ]
)
NOON = datetime.datetime(2026, 11, 17, 12, 0, 0, 5, tzinfo=datetime.UTC)
MESSAGES = [
    {
        "id": 2**40,
        "name": "",
        "tags": ["a", "b"],
        "counts": [("x", 1)],
        "at": NOON,
        "inner": {"ok": False, "raw": b"\xff"},
    },
    {"id": None, "name": None, "tags": [], "counts": [], "at": None, "inner": None},
    {
        "id": 0,
        "name": "x",
        "tags": [],
        "counts": [],
        "at": None,
        "inner": {"ok": None, "raw": None},
    },
]


def last_file(descriptors: bytes) -> str:
    file = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[-1]
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize("is_given", [False, True])
def test_sink_writes_protobuf_and_source_reads_it_back(
    cluster: SourceCluster, registry: RegistryServer, is_given: bool
) -> None:
    """A null stays null, and an empty string or false stays what it is."""
    topic = cluster.create()
    declared = message_of(MESSAGE, f"{topic}_value")
    for text in (declared.text, declared.text.strip()):  # options are stripped
        registry.compiled[text] = last_file(declared.descriptors)
    given = {
        "kafka.bootstrap.servers": cluster.node.bootstrap,
        "topic": topic,
        "valueFormat": "protobuf",
        "schema.registry.url": registry.url,
    }
    options = SinkOptions.parse({**given, **({"valueSchema": declared.text} if is_given else {})})
    rows = pa.RecordBatch.from_pylist(
        [{"value": each} for each in MESSAGES], pa.schema([("value", MESSAGE)])
    )
    SinkTask(options, Task("s", 0, 0)).write(encode_batches([rows], options.encoding, topic))
    assert registry.schemas[1]["schemaType"] == "PROTOBUF"
    found = read(
        cluster,
        subscribe=topic,
        schema__registry__url=registry.url,
        valueFormat="registry",
    )
    assert [each["value"] for each in found] == MESSAGES


def test_generated_message_is_declared_in_proto3() -> None:
    text = message_of(MESSAGE, "shop-orders_value").text
    assert (
        text
        == """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message shop_orders_value {
  message inner_message {
    optional bool ok = 1;
    optional bytes raw = 2;
  }
  optional int64 id = 1;
  optional string name = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  google.protobuf.Timestamp at = 5;
  inner_message inner = 6;
}
"""
    )
    assert declared_name(f"// message No {{\npackage a.b;\n{text}") == "a.b.shop_orders_value"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.int64(), "made from a struct"),
        (pa.struct([("a", pa.decimal128(9, 2))]), "no type for decimal"),
        (pa.struct([("a", pa.list_(pa.list_(pa.int64())))]), "no lists of list"),
        (pa.struct([("a", pa.map_(pa.float64(), pa.int64()))]), "keys of double"),
        (pa.struct([("a b", pa.int64())]), "'a b' is not a name"),
    ],
)
def test_column_that_protobuf_cannot_have_is_explained(kind: pa.DataType, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        message_of(kind, "t_value")


@pytest.mark.parametrize(
    ("datum", "message"),
    [
        ({"id": 2**70}, "does not fit the schema|out of range"),
        ({"id": "x"}, "does not fit the schema"),
        ({"tags": ["a", None]}, "has no nulls"),
        ({"who": 1}, "no field 'who'"),
        ({"inner": 1}, "inner is a message"),
        ({"at": 1}, "at is a timestamp"),
        (7, "is not int"),
    ],
)
def test_datum_that_does_not_fit_its_message_is_explained(datum: object, message: str) -> None:
    encode = message_encoder(message_of(MESSAGE, "t").descriptors)
    with pytest.raises(ValueError, match=message):
        encode(datum)


def test_row_that_does_not_fit_the_given_schema_is_rejected(registry: RegistryServer) -> None:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "x:1",
            "topic": "t",
            "valueFormat": "avro",
            "valueSchema": json.dumps({**V1, "fields": [{"name": "id", "type": "string"}]}),
            "schema.registry.url": registry.url,
        }
    )
    with pytest.raises(BadRow, match="does not fit the schema"):
        list(encode_batches([ROWS], options.encoding, "t"))


def test_wrong_options_of_the_sink_are_named() -> None:
    base = {"kafka.bootstrap.servers": "x:1", "topic": "t"}
    with pytest.raises(OptionError, match="must be raw, avro, json or protobuf"):
        SinkOptions.parse({**base, "valueFormat": "xml"})
    token = {"schema.registry.bearer.auth.token": "t"}
    with pytest.raises(OptionError, match=r"needs schema\.registry\.url"):
        SinkOptions.parse({**base, **token, "valueFormat": "avro"})
    with pytest.raises(OptionError, match="subjectNameStrategy"):
        SinkOptions.parse({**base, "subjectNameStrategy": "mine"})


def test_sink_without_an_address_uses_the_registry_of_the_cluster() -> None:
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": "x:1", "topic": "t", "valueFormat": "avro"}
    )
    assert options.encoding is not None
    settings = options.encoding.registry
    assert settings.urls == () and settings.cluster is not None
    assert settings.cluster.bootstrap == ("x:1",)


# -- table jobs ------------------------------------------------------------------------


def table_job(topic: str, **value: object) -> TableJob:
    declared = {"topic": topic, "table": {"path": "t"}, "value": value}
    return parse_job(declared)


def test_table_decodes_by_the_registry_with_a_reason_for_bad_rows(
    registry: RegistryServer,
) -> None:
    number = registry.add("orders-value", json.dumps(V1))
    job = table_job("orders", format="avro", registry={"url": registry.url})
    values = pickle.loads(pickle.dumps(_registry_values(job)))
    data = [framed(number, avro(V1, {"id": 4})), framed(99, b"x"), b"poison"]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(data, pa.binary())})
    found = decode_batch(batch, values).to_pylist()
    assert [each["id"] for each in found] == [4, None, None]
    assert [each[REASON_COLUMN] for each in found] == [
        None,
        "schema id 99 is unknown to the registry",
        f"not in the registry's format: {NO_ID}",
    ]


def test_table_decodes_keys_by_the_registry_with_a_reason_for_bad_ones(
    registry: RegistryServer,
) -> None:
    number = registry.add("orders-key", json.dumps(V1))
    key = {"format": "avro", "registry": {"url": registry.url}}
    job = parse_job({"topic": "orders", "table": {"path": "t"}, "record_key": key})
    values = pickle.loads(pickle.dumps(_registry_values(job, "key")))
    data = [framed(number, avro(V1, {"id": 4})), None, b"poison"]
    batch = pa.RecordBatch.from_pydict({"key": pa.array(data, pa.binary())})
    found = decode_keys(batch, values).to_pylist()
    assert [each[KEY_COLUMN] for each in found] == [{"id": 4}, None, None]
    bad = f"the key: not in the registry's format: {NO_ID}"
    assert [each[KEY_REASON] for each in found] == [None, None, bad]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"format": "raw"}, "record_key.format must be avro, protobuf or json"),
        ({"format": "avro", "schema_file": "f"}, "record_key needs registry"),
        (
            {"format": "avro", "registry": {"bearer.auth.token": "t"}},
            "record_key.registry: .*needs",
        ),
    ],
)
def test_wrong_record_key_of_a_table_is_named(key: dict[str, object], message: str) -> None:
    with pytest.raises(BadJob, match=message):
        parse_job({"topic": "orders", "table": {"path": "t"}, "record_key": key})


def test_table_of_another_format_than_the_subject_is_rejected(registry: RegistryServer) -> None:
    registry.add("orders-value", json.dumps(V1))
    job = table_job("orders", format="json", registry={"url": registry.url})
    with pytest.raises(BadJob, match="orders-value is AVRO"):
        _registry_values(job)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"format": "avro", "registry": {"bearer.auth.token": "t"}}, "needs schema.registry.url"),
        ({"format": "raw", "registry": {"url": "http://x"}}, "does not apply to value.format raw"),
        ({"format": "avro", "registry": {"url": "x"}}, "must begin with http"),
        ({"format": "avro", "registry": {"url": "http://x"}, "framed": True}, "do not apply"),
        ({"format": "avro", "subject": "s", "schema_file": "f"}, "needs value.registry"),
    ],
)
def test_wrong_registry_of_a_table_is_named(value: dict[str, object], message: str) -> None:
    with pytest.raises(BadJob, match=message):
        table_job("orders", **value)
