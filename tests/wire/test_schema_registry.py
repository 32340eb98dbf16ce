"""The schema registry of a node, through Confluent's client and plain HTTP."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.patience import SECONDS_MAX

from ottla.testing.cluster import Cluster, run_cluster

USER = json.dumps(
    {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
)
USER_WITH_AGE = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": "int", "default": 0},
        ],
    }
)
USER_INCOMPATIBLE = json.dumps(
    {"type": "record", "name": "User", "fields": [{"name": "mail", "type": "string"}]}
)
V1 = "application/vnd.schemaregistry.v1+json"


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_cluster(1, schema_registry=True) as cluster:
        yield cluster


@pytest.fixture
def client(node: Cluster) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": node.schema_registry_url}) as client:
        yield client


def call(
    node: Cluster, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, object, dict[str, str]]:
    """Return status, parsed body and headers of a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(node.schema_registry_url + path, data, method=method)
    request.add_header("Content-Type", headers.pop("content_type", V1))
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text else None, dict(reply.headers)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, json.loads(text) if text else None, dict(error.headers)


def test_client_registers_finds_and_deletes_schemas(client: SchemaRegistryClient) -> None:
    first = client.register_schema("users-value", Schema(USER, "AVRO"))
    assert client.register_schema("users-value", Schema(USER, "AVRO")) == first
    second = client.register_schema("users-value", Schema(USER_WITH_AGE, "AVRO"))
    assert second > first
    assert json.loads(client.get_schema(first).schema_str) == json.loads(USER)
    assert client.get_versions("users-value") == [1, 2]
    assert client.get_latest_version("users-value").schema_id == second
    assert client.lookup_schema("users-value", Schema(USER, "AVRO")).version == 1
    assert not client.test_compatibility("users-value", Schema(USER_INCOMPATIBLE, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("users-value", Schema(USER_INCOMPATIBLE, "AVRO"))
    assert refused.value.http_status_code == 409
    assert client.delete_subject("users-value") == [1, 2]
    assert client.delete_subject("users-value", permanent=True) == [1, 2]
    assert "users-value" not in client.get_subjects()


def test_root_and_unknown_paths(node: Cluster) -> None:
    status, body, headers = call(node, "GET", "/")
    assert (status, body) == (200, {})
    assert headers["content-type"] == V1
    assert call(node, "GET", "/nowhere")[:2] == (
        404,
        {"error_code": 404, "message": "HTTP 404 Not Found"},
    )
    assert call(node, "PATCH", "/subjects")[:2] == (
        405,
        {"error_code": 405, "message": "HTTP 405 Method Not Allowed"},
    )
    assert call(node, "GET", "/dek-registry/v1/keks")[0] == 404
    assert call(node, "GET", "/subjects", Accept="application/json")[2]["content-type"] == (
        "application/json"
    )
    assert call(node, "GET", "/subjects", Accept="text/html")[0] == 406
    assert call(node, "GET", "/schemas/types")[1] == ["JSON", "PROTOBUF", "AVRO"]


def test_head_has_the_headers_of_get_and_no_body(node: Cluster) -> None:
    host = node.schema_registry_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=SECONDS_MAX)
    connection.request("HEAD", "/subjects")
    reply = connection.getresponse()
    assert (reply.status, reply.read()) == (200, b"")
    assert int(reply.headers["content-length"]) >= 2
    connection.close()


def test_bodies_that_are_no_request_are_rejected(node: Cluster) -> None:
    path = "/subjects/bad/versions"
    assert call(node, "POST", path, {"schema": USER}, content_type="text/plain")[0] == 415
    assert call(node, "POST", path, [1])[0] == 422
    assert call(node, "POST", path, {"schema": "{"})[1]["error_code"] == 42201  # type: ignore[index]
    host = node.schema_registry_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=SECONDS_MAX)
    connection.request("POST", path, b"{", {"Content-Type": V1})
    with connection.getresponse() as reply:
        assert reply.status == 400
    connection.close()


def test_subject_may_contain_a_slash_and_unknown_members_are_accepted(node: Cluster) -> None:
    body = {"schema": USER, "schemaType": "AVRO", "newMember": {"x": [1]}}
    status, reply, _ = call(node, "POST", "/subjects/a%2Fb/versions", body)
    assert status == 200
    assert call(node, "GET", "/subjects/a%2Fb/versions")[1] == [1]
    assert "a/b" in call(node, "GET", "/subjects?subjectPrefix=a")[1]  # type: ignore[operator]
    guid = reply["guid"]  # type: ignore[index]
    assert call(node, "GET", f"/schemas/guids/{guid}")[1]["schema"]  # type: ignore[index]


def test_contexts_have_ids_of_their_own(node: Cluster) -> None:
    body = {"schema": '"bytes"'}
    assert call(node, "POST", "/contexts/.team/subjects/s/versions", body)[1]["id"] == 1  # type: ignore[index]
    assert call(node, "GET", "/subjects/:.team:s/versions/1")[1]["subject"] == ":.team:s"  # type: ignore[index]
    assert call(node, "GET", "/contexts")[1] == [".", ".team"]
    found = call(node, "GET", "/contexts/.team/schemas/ids/1")[1]
    assert found["schema"] == '"bytes"'  # type: ignore[index]


def test_settings_and_modes_have_the_members_of_confluent(node: Cluster) -> None:
    assert call(node, "GET", "/config")[1] == {"compatibilityLevel": "BACKWARD"}
    assert call(node, "GET", "/config/none")[1]["error_code"] == 40408  # type: ignore[index]
    assert call(node, "PUT", "/config/c", {"compatibility": "FULL"})[1] == {"compatibility": "FULL"}
    assert call(node, "GET", "/config/c")[1] == {"compatibilityLevel": "FULL"}
    assert call(node, "DELETE", "/config/c")[1] == {"compatibilityLevel": "FULL"}
    assert call(node, "GET", "/mode")[1] == {"mode": "READWRITE"}
    assert call(node, "GET", "/mode/c")[1]["error_code"] == 40409  # type: ignore[index]
    assert call(node, "PUT", "/mode/c", {"mode": "READONLY"})[1] == {"mode": "READONLY"}
    assert call(node, "DELETE", "/mode/c")[1] == {"mode": "READONLY"}


def test_avro_serializer_round_trip(client: SchemaRegistryClient) -> None:
    context = SerializationContext("people", MessageField.VALUE)
    data = AvroSerializer(client, USER)({"name": "Ann"}, context)
    assert data is not None
    assert data[0] == 0
    assert AvroDeserializer(client)(data, context) == {"name": "Ann"}


def test_json_serializer_round_trip(client: SchemaRegistryClient) -> None:
    schema = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Person",
            "type": "object",
            "properties": {"name": {"type": "string"}},
        }
    )
    context = SerializationContext("json-people", MessageField.VALUE)
    data = JSONSerializer(schema, client)({"name": "Ann"}, context)
    assert data is not None
    assert JSONDeserializer(None, schema_registry_client=client)(data, context) == {"name": "Ann"}


def order_class() -> type:
    """Return the class of a Protobuf message, made without protoc."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in enumerate(("item", "buyer"), 1):
        message.field.add(
            name=name,
            number=number,
            type=FieldDescriptorProto.TYPE_STRING,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_serializer_round_trip(client: SchemaRegistryClient, node: Cluster) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    order = order_class()
    context = SerializationContext("orders", MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(order, client, settings)(order(item="tea"), context)
    assert data is not None
    # The client that registered it has its own form; another one asks for the descriptor.
    with SchemaRegistryClient({"url": node.schema_registry_url}) as other:
        for reader in (client, other):
            read = ProtobufDeserializer(order, settings, reader)(data, context)
            assert read is not None
            assert read.item == "tea"
    text = call(node, "GET", "/subjects/orders-value/versions/1")[1]["schema"]  # type: ignore[index]
    assert "message Order" in text


def test_poison_record_is_skipped_and_state_survives_a_restart() -> None:
    with run_cluster(1, schema_registry=True) as cluster:
        with SchemaRegistryClient({"url": cluster.schema_registry_url}) as client:
            first = client.register_schema("kept", Schema(USER, "AVRO"))
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            producer.produce("_schemas", key=b"poison", value=b"{")
            foreign = {"subject": "foreign", "version": 1, "id": first + 10, "schema": '"long"'}
            key = {"keytype": "SCHEMA", "subject": "foreign", "version": 1, "magic": 1}
            producer.produce(
                "_schemas",
                key=json.dumps(key, separators=(",", ":")).encode(),
                value=json.dumps(foreign).encode(),
            )
            assert producer.flush(SECONDS_MAX) == 0
            # The leader replays its log to the end before it gives an id.
            assert client.register_schema("next", Schema('"int"', "AVRO")) == first + 11
        cluster.restart(1)
        with SchemaRegistryClient({"url": cluster.schema_registry_url}) as again:
            # A registration waits for the log to be replayed; a read right after the start may not.
            assert again.register_schema("more", Schema('"float"', "AVRO")) == first + 12
            assert again.get_subjects() == ["foreign", "kept", "more", "next"]
            assert again.register_schema("kept", Schema(USER, "AVRO")) == first


def test_existing_schema_is_registered_again_while_the_subject_is_read_only(node: Cluster) -> None:
    """Serializers register what they send; Confluent looks for it before it checks the mode."""
    body = {"schema": '{"type": "record", "name": "Kept", "fields": []}'}
    first = call(node, "POST", "/subjects/read-only/versions", body)
    assert first[0] == 200
    assert call(node, "PUT", "/mode/read-only", {"mode": "READONLY"})[0] == 200
    again = call(node, "POST", "/subjects/read-only/versions", body)
    assert again[0] == 200 and again[1]["id"] == first[1]["id"]  # type: ignore[index]
    other = {"schema": '{"type": "record", "name": "Other", "fields": []}'}
    assert call(node, "POST", "/subjects/read-only/versions", other)[1]["error_code"] == 42205  # type: ignore[index]


def test_compatibility_with_a_subject_that_does_not_exist(node: Cluster) -> None:
    body = {"schema": '"string"'}
    path = "/compatibility/subjects/nowhere/versions"
    assert call(node, "POST", f"{path}/latest", body)[:2] == (200, {"is_compatible": True})
    assert call(node, "POST", path, body)[:2] == (200, {"is_compatible": True})
    status, reply, _ = call(node, "POST", f"{path}/7", body)
    assert (status, reply["error_code"]) == (404, 40402)  # type: ignore[index]


def test_topic_that_would_lose_schemas_is_not_written_to() -> None:
    with run_cluster(1, schema_registry=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("_schemas", 1, 1, config={"cleanup.policy": "delete"})
        admin.create_topics([topic])["_schemas"].result(SECONDS_MAX)
        status, reply, _ = call(cluster, "POST", "/subjects/s/versions", {"schema": '"int"'})
        assert (status, reply["error_code"]) == (500, 50001)  # type: ignore[index]
        assert "cleanup.policy=compact" in reply["message"]  # type: ignore[index]
