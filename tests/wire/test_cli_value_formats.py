"""`ottla consume` decodes Avro and Protobuf values with a schema file, in every form of output."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_node() as found:
        yield found


def ottla(node: Cluster, *arguments: object, code: int = 0) -> str:
    env = {"OTTLA_BOOTSTRAP": node.bootstrap}
    done = CliRunner().invoke(app, list(map(str, arguments)), env=env)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


def produce(node: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in values:
        producer.produce(topic, value, key=b"k")
    assert producer.flush(SECONDS_MAX) == 0


def avro(**datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), datum)
    return out.getvalue()


def test_avro_values_are_printed_as_json(node: Cluster, tmp_path: Path) -> None:
    produce(node, "avro-orders", avro(id=1, note="one"), avro(id=2, note=None))
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(AVRO))
    options = ["--value-format", "avro", "--schema-file", file, "-e"]
    expected = [{"id": 1, "note": "one"}, {"id": 2, "note": None}]
    found = ottla(node, "consume", "avro-orders", *options)
    assert [json.loads(line) for line in found.splitlines()] == expected
    in_group = ottla(node, "consume", "avro-orders", *options, "-g", "avro-readers", "-K", "|")
    assert [line.split("|")[0] for line in in_group.splitlines()] == ["k", "k"]
    envelopes = ottla(node, "consume", "avro-orders", *options, "-J").splitlines()
    assert [json.loads(json.loads(each)["payload"]) for each in envelopes] == expected
    produce(node, "avro-orders", b"\xff")
    assert "offset 2" in ottla(node, "consume", "avro-orders", *options, code=1)


def test_protobuf_values_are_printed_as_json(node: Cluster, tmp_path: Path) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Item")
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="name", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))
    produce(node, "goods", made(id=7, name="tea").SerializeToString())
    schema = tmp_path / "item.desc"
    schema.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    options = ["consume", "goods", "-e", "--value-format", "protobuf", "--schema-file", schema]
    found = ottla(node, *options, "--message", "shop.Item")
    assert json.loads(found) == {"id": 7, "name": "tea"}
    assert "--message" in ottla(node, *options, code=1)
    source = tmp_path / "item.proto"
    source.write_text('syntax = "proto3";')
    said = ottla(node, *options[:-1], source, "--message", "shop.Item", code=1)
    assert "compile it with `protoc --include_imports" in said
    assert json.loads(ottla(node, *options, "-o", "json", code=1))["exit_code"] == 1
