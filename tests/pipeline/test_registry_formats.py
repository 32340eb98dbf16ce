"""Records of Confluent's serializers, read by the command line and SQL, and the way back.

No command names the registry: it is that of the cluster.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import wrappers_pb2
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.testing import Cluster, run_cluster

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
JSON_ORDER = json.dumps(
    {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
)
PLACES = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_cluster(1, schema_registry=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(node: Cluster) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": node.schema_registry_url}) as client:
        yield client


def create(node: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS_MAX)


def ottla(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def send(node: Cluster, topic: str, line: str, directory: Path, *options: str) -> Result:
    """Send a line with `ottla produce`."""
    file = directory / "lines"
    file.write_text(f"{line}\n")
    return ottla("produce", topic, str(file), *options, "-b", node.bootstrap)


def lines(done: Result) -> list[dict]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def produce(node: Cluster, topic: str, serialize, data: list) -> None:
    """Send values of one of Confluent's serializers."""
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for datum in data:
        headers: list = [("own", b"1")]
        context = SerializationContext(topic, MessageField.VALUE, headers)
        producer.produce(topic, serialize(datum, context), headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize("place", PLACES)
def test_avro_is_read_by_consume_and_sql(
    node: Cluster, client: SchemaRegistryClient, place: str
) -> None:
    topic = f"avro-{place}"
    create(node, topic)
    serialize = AvroSerializer(client, ORDER, conf={"schema.id.serializer": PLACES[place]})
    produce(node, topic, serialize, [{"id": 1}, {"id": 2}])
    done = ottla("consume", topic, "-e", "--value-format", "avro", "-b", node.bootstrap)
    assert lines(done) == [{"id": 1}, {"id": 2}]
    done = ottla("sql", f'select id from "{topic}" order by id', "-b", node.bootstrap, "-o", "json")
    assert lines(done) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("place", PLACES)
def test_json_schema_is_read_by_consume(
    node: Cluster, client: SchemaRegistryClient, place: str
) -> None:
    topic = f"json-{place}"
    create(node, topic)
    conf = {"schema.id.serializer": PLACES[place]}
    serialize = JSONSerializer(JSON_ORDER, client, lambda order, _: order, conf=conf)
    produce(node, topic, serialize, [{"id": 1}])
    done = ottla("consume", topic, "-e", "--value-format", "json", "-b", node.bootstrap)
    assert lines(done) == [{"id": 1}]


@pytest.mark.parametrize("place", PLACES)
def test_protobuf_is_read_by_consume(
    node: Cluster, client: SchemaRegistryClient, place: str
) -> None:
    topic = f"protobuf-{place}"
    create(node, topic)
    conf = {"schema.id.serializer": PLACES[place]}
    serialize = ProtobufSerializer(wrappers_pb2.DoubleValue, client, conf=conf)
    produce(node, topic, serialize, [wrappers_pb2.DoubleValue(value=1.5)])
    done = ottla("consume", topic, "-e", "--value-format", "protobuf", "-b", node.bootstrap)
    assert lines(done) == [{"value": 1.5}]


@pytest.mark.parametrize("place", PLACES)
def test_produce_uses_the_newest_schema_of_the_subject(
    node: Cluster, client: SchemaRegistryClient, place: str, tmp_path: Path
) -> None:
    topic = f"produced-{place}"
    create(node, topic)
    number = client.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    options = ("--value-format", "avro", "--schema-id", place)
    done = send(node, topic, '{"id": 7}', tmp_path, *options)
    assert done.exit_code == 0, done.output
    done = ottla("consume", topic, "-e", "-J", "-b", node.bootstrap)
    (record,) = lines(done)
    has_header = any("schema_id" in str(header) for header in record.get("headers", []))
    assert has_header is (place == "header")
    assert len(client.get_versions(f"{topic}-value")) == 1
    assert client.get_schema(number).schema_str is not None
    done = ottla("consume", topic, "-e", "--value-format", "avro", "-b", node.bootstrap)
    assert lines(done) == [{"id": 7}]


def test_confluents_deserializer_reads_what_produce_writes_into_headers(
    node: Cluster, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic = "produced-file"
    create(node, topic)
    file = tmp_path / "order.avsc"
    item = {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}]}
    file.write_text(json.dumps(item))
    options = ("--value-format", "avro", "--schema-file", str(file), "--registry", "auto")
    done = send(node, topic, '{"name": "teapot"}', tmp_path, *options, "--schema-id", "header")
    assert done.exit_code == 0, done.output
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(SECONDS_MAX)
    finally:
        consumer.close()
    assert message is not None and message.error() is None
    conf = {"schema.id.deserializer": dual_schema_id_deserializer}
    deserialize = AvroDeserializer(client, conf=conf)
    context = SerializationContext(topic, MessageField.VALUE, message.headers())
    assert deserialize(message.value(), context) == {"name": "teapot"}


def test_produce_without_a_schema_says_what_to_do(node: Cluster, tmp_path: Path) -> None:
    create(node, "schemaless")
    done = send(node, "schemaless", "{}", tmp_path, "--value-format", "avro")
    assert done.exit_code == 1
    assert "ottla schema register schemaless-value FILE" in done.output


def test_json_without_a_schema_stays_plain(node: Cluster, tmp_path: Path) -> None:
    create(node, "plain-json")
    done = send(node, "plain-json", '{"a": 1}', tmp_path, "--value-format", "json")
    assert done.exit_code == 0, done.output
    done = ottla("consume", "plain-json", "-e", "--value-format", "json", "-b", node.bootstrap)
    assert lines(done) == [{"a": 1}]


def test_credentials_are_not_sent_to_a_registry_that_was_found(
    node: Cluster, tmp_path: Path
) -> None:
    create(node, "secret")
    assert send(node, "secret", "\0\0\0\0\1x", tmp_path).exit_code == 0
    done = ottla(
        *("-X", "schema.registry.basic.auth.user.info=a:b"),
        *("consume", "secret", "-e", "--value-format", "avro", "-b", node.bootstrap),
    )
    assert done.exit_code == 2
    assert "schema.registry.basic.auth.user.info needs" in " ".join(done.output.split())


def test_cluster_without_a_registry_is_a_clear_error(tmp_path: Path) -> None:
    with run_cluster(1) as cluster:
        create(cluster, "lonely")
        done = send(cluster, "lonely", "\0\0\0\0\1x", tmp_path)
        assert done.exit_code == 0, done.output
        done = ottla("consume", "lonely", "-e", "--value-format", "avro", "-b", cluster.bootstrap)
    assert done.exit_code == 1
    assert "no broker of the cluster publishes one" in " ".join(done.output.split())
