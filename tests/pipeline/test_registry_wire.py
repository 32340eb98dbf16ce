"""Schemas of a registry over a real node: `ottla sql`, `ottla consume` and `ottla produce`."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2
from registry_server import RegistryServer, run_registry
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.formats.protobuf_writer import message_of
from ottla.formats.wire_format import framed
from ottla.testing import Cluster

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
V2_PLAIN = {**V2, "namespace": ""}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with run_registry() as server:
        yield server


def avro(schema: dict, datum: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


@pytest.fixture(scope="module")
def bootstrap(spark_node: Cluster, registry: RegistryServer) -> str:
    producer = Producer({"bootstrap.servers": spark_node.bootstrap})
    first = registry.add("reg-orders-value", json.dumps(V1))
    second = registry.add("reg-orders-value", json.dumps(V2_PLAIN))
    number = registry.add("reg-orders-key", '"string"')
    for index in range(6):  # two versions of the schema take turns
        datum = {"id": index, "note": f"n{index}"}
        old, new = avro(V1, {"id": index}), avro(V2_PLAIN, datum)
        value = framed(first, old) if index % 2 else framed(second, new)
        producer.produce("reg-orders", value, framed(number, bytes([4]) + b"k%d" % index))
    producer.produce("reg-orders", None, framed(number, b"\x04k9"))
    producer.produce("reg-poison", framed(second, avro(V2_PLAIN, {"id": 1, "note": None})))
    producer.produce("reg-poison", framed(777, b"\x02"))
    assert producer.flush(SECONDS_MAX) == 0
    return spark_node.bootstrap


def ottla(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments], input=text)


def lines(done: Result) -> list[dict]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_sql_reads_all_versions_of_a_schema(bootstrap: str, registry: RegistryServer) -> None:
    query = 'select key_value, id, note from "reg-orders" order by "offset"'
    done = ottla("sql", query, "-b", bootstrap, "--registry", registry.url, "-o", "json")
    assert lines(done) == [
        *({"key_value": f"k{i}", "id": i, "note": None if i % 2 else f"n{i}"} for i in range(6)),
        {"key_value": "k9", "id": None, "note": None},
    ]


def test_sql_names_the_record_with_an_unknown_schema(
    bootstrap: str, registry: RegistryServer
) -> None:
    arguments = ["-b", bootstrap, "--registry", registry.url, "-f", "avro"]
    done = ottla("sql", 'select id from "reg-poison"', *arguments)
    # The subject does not exist: the schema of the newest known value is used.
    assert done.exit_code == 1
    assert "schema id 777 is unknown to the registry" in done.stderr
    registry.add("reg-poison-value", json.dumps(V2_PLAIN))
    done = ottla("sql", 'select id from "reg-poison"', *arguments)
    assert done.exit_code == 1
    assert "reg-poison-0 at offset 1: " in done.stderr
    query = 'select id, value_error from "reg-poison"'
    found = lines(ottla("sql", query, *arguments, "--bad-values", "null", "-o", "json"))
    assert found == [
        {"id": 1, "value_error": None},
        {"id": None, "value_error": "schema id 777 is unknown to the registry"},
    ]


def test_unreachable_registry_is_one_line(bootstrap: str) -> None:
    done = ottla(
        "sql", 'select id from "reg-orders"', "-b", bootstrap, "-f", "avro",
        "-X", "schema.registry.url=http://127.0.0.1:1",
    )  # fmt: skip
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("schema registry http://127.0.0.1:1: ")


def test_consume_prints_decoded_keys_and_values(bootstrap: str, registry: RegistryServer) -> None:
    done = ottla(
        "consume", "reg-orders", "-e", "-K", " ", "-b", bootstrap, "--registry", registry.url,
        "--value-format", "avro", "--key-format", "avro",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:2] == [
        '{"value": "k0"} {"id": 0, "note": "n0"}',
        '{"value": "k1"} {"id": 1, "note": null}',
    ]
    assert done.stdout.splitlines()[-1] == '{"value": "k9"} '


def test_consume_names_a_bad_record(bootstrap: str, registry: RegistryServer) -> None:
    registry.add("reg-poison-value", json.dumps(V2_PLAIN))
    done = ottla(
        "consume", "reg-poison", "-e", "-b", bootstrap, "--registry", registry.url,
        "--value-format", "avro",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "reg-poison-0 at offset 1: the value: schema id 777 is unknown" in done.stderr


@pytest.mark.parametrize("strategy", ["topic", "record", "topic-record"])
def test_produce_registers_and_consume_reads_back(
    bootstrap: str, registry: RegistryServer, tmp_path: Path, strategy: str
) -> None:
    topic, file, data = f"reg-{strategy}", tmp_path / "order.avsc", tmp_path / "lines"
    file.write_text(json.dumps(V2))
    data.write_text('{"id": 1, "note": "a"}\n{"id": 2}\n')
    done = ottla(
        "produce", topic, str(data), "-b", bootstrap, "--registry", registry.url,
        "--value-format", "avro", "--schema-file", str(file), "--subject-strategy", strategy,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    subjects = {
        "topic": f"{topic}-value",
        "record": "shop.Order",
        "topic-record": f"{topic}-shop.Order",
    }
    assert subjects[strategy] in registry.subjects
    done = ottla(
        "consume", topic, "-e", "-b", bootstrap, "--registry", registry.url,
        "--value-format", "avro",
    )  # fmt: skip
    assert lines(done) == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]


def test_produce_without_a_registry_writes_plain_avro(bootstrap: str, tmp_path: Path) -> None:
    file, data = tmp_path / "order.avsc", tmp_path / "lines"
    file.write_text(json.dumps(V1))
    data.write_text('{"id": 1}\n')
    formats = ["-b", bootstrap, "--value-format", "avro", "--schema-file", str(file)]
    assert ottla("produce", "reg-plain", str(data), *formats).exit_code == 0
    assert lines(ottla("consume", "reg-plain", "-e", *formats)) == [{"id": 1}]
    data.write_text('{"id": "x"}\n')
    done = ottla("produce", "reg-plain", str(data), *formats)
    assert done.exit_code == 1
    assert "does not fit the schema" in done.stderr
    assert "0 records were accepted before it" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--value-format", "xml"],
        ["produce", "t", "--value-format", "avro", "--subject-strategy", "mine"],
        ["sql", "select 1", "--registry", "ftp://x"],
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    assert ottla(*arguments).exit_code == 2


def test_produced_protobuf_is_consumed_again(
    bootstrap: str, registry: RegistryServer, tmp_path: Path
) -> None:
    kind = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    declared = message_of(kind, "Order")
    file = descriptor_pb2.FileDescriptorSet.FromString(declared.descriptors).file[-1]
    registry.compiled[declared.text] = base64.b64encode(file.SerializeToString()).decode()
    (tmp_path / "order.proto").write_text(declared.text)
    (tmp_path / "order.desc").write_bytes(declared.descriptors)
    data = tmp_path / "lines"
    data.write_text('{"id": 7, "at": "2026-11-17T12:00:00Z"}\n')

    def both(topic: str, file: str, written: list[str], read: list[str]) -> list[dict]:
        given = ["-b", bootstrap, "--value-format", "protobuf"]
        schema = ["--schema-file", str(tmp_path / file)]
        done = ottla("produce", topic, str(data), *given, *schema, *written)
        assert done.exit_code == 0, done.output
        return lines(ottla("consume", topic, "-e", *given, *read))

    by = ["--registry", registry.url]
    by_registry = both("reg-proto", "order.proto", by, by)
    described = ["--schema-file", str(tmp_path / "order.desc"), "--message", "Order"]
    assert by_registry == both("plain-proto", "order.desc", [], described)
    assert by_registry == [{"id": 7, "at": 1_794_916_800_000_000}]  # microseconds
    words = ["-b", bootstrap, "--value-format", "protobuf"]
    schema = ["--schema-file", str(tmp_path / "order.desc")]
    data.write_text('{"who": 1}\n')
    done = ottla("produce", "plain-proto", str(data), *words, *schema)
    assert done.exit_code == 1
    assert "Order has no field 'who'" in done.stderr
