"""Schemas of a registry: the client, the frame, and values of several versions."""

import base64
import contextlib
import io
import json
import pickle
import ssl

import fastavro
import pytest
import trustme
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from registry_server import RegistryServer, basic, run_registry

from ottla.formats.registry_client import (
    SCHEMAS_MAX,
    BadRegistrySettings,
    Registry,
    RegistryFailed,
    RegistrySettings,
    UnknownSchema,
)
from ottla.formats.registry_values import RegistryValues, subject_values
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.wire_format import BadFrame, framed, split_frame

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture
def registry():
    with run_registry() as server:
        yield server


def settings(server: RegistryServer, **more: str) -> RegistrySettings:
    found = RegistrySettings.parse(
        {"schema.registry.url": server.url}
        | {f"schema.registry.{key.replace('_', '.')}": each for key, each in more.items()}
    )
    assert found is not None
    return found


def avro(schema: object, datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


class TestClient:
    def test_schemas_are_requested_once(self, registry: RegistryServer) -> None:
        number = registry.add("s", json.dumps(V1))
        client = Registry(settings(registry))
        assert client.schema(number) == client.schema(number)
        assert registry.requests == [f"GET /schemas/ids/{number}"]

    def test_unknown_id_is_requested_once(self, registry: RegistryServer) -> None:
        client = Registry(settings(registry))
        for _ in range(3):
            with pytest.raises(UnknownSchema, match="schema id 99 is unknown"):
                client.schema(99)
        assert len(registry.requests) == 1

    def test_cache_is_bounded(self, registry: RegistryServer) -> None:
        client = Registry(settings(registry))
        for number in range(SCHEMAS_MAX + 50):
            client._schemas[number, False] = None  # type: ignore[assignment]
        client.schema(registry.add("s", '"long"') + 0)
        assert len(client._schemas) == SCHEMAS_MAX

    def test_registering_twice_gives_the_same_id(self, registry: RegistryServer) -> None:
        client = Registry(settings(registry))
        first = client.register("a/b-value", "AVRO", '"long"')
        assert client.register("a/b-value", "AVRO", '"long"') == first
        assert registry.subjects == {"a/b-value": [first.id]}
        assert len(registry.requests) == 1

    def test_incompatible_schema_is_reported_with_the_reason(
        self, registry: RegistryServer
    ) -> None:
        registry.rejected.add("s")
        with pytest.raises(RegistryFailed, match=r"409.*incompatible"):
            Registry(settings(registry)).register("s", "AVRO", '"long"')

    @pytest.mark.parametrize("wrong", [False, True])
    def test_basic_credentials(self, wrong: bool) -> None:
        with run_registry(basic("ella", "secret")) as server:
            number = server.add("s", '"long"')
            info = f"ella:{'wrong' if wrong else 'secret'}"
            client = Registry(settings(server, basic_auth_user_info=info))
            if wrong:
                with pytest.raises(RegistryFailed, match="rejects the credentials") as caught:
                    client.schema(number)
                assert "wrong" not in str(caught.value)
            else:
                assert client.schema(number).text == '"long"'

    def test_bearer_token(self) -> None:
        with run_registry("Bearer abc") as server:
            number = server.add("s", '"long"')
            client = Registry(settings(server, bearer_auth_token="abc"))
            assert client.schema(number).id == number

    def test_credentials_in_the_url_are_used_and_not_shown(self) -> None:
        with run_registry(basic("ella", "secret")) as server:
            number = server.add("s", '"long"')
            server.url = server.url.replace("//", "//ella:secret@")
            assert Registry(settings(server)).schema(number).id == number
            assert "secret" not in repr(settings(server))

    def test_certificate_authority(self, tmp_path) -> None:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(file))
        with run_registry(context=context) as server:
            number = server.add("s", '"long"')
            assert Registry(settings(server, ssl_ca_location=str(file))).schema(number).id == number
            with pytest.raises(RegistryFailed, match="CERTIFICATE_VERIFY_FAILED"):
                Registry(settings(server)).schema(number)

    def test_next_address_is_tried(self, registry: RegistryServer) -> None:
        number = registry.add("s", '"long"')
        registry.url = f"http://127.0.0.1:1,{registry.url}"
        assert Registry(settings(registry)).schema(number).id == number

    def test_unreachable_registry_is_named(self) -> None:
        found = RegistrySettings.parse({"schema.registry.url": "http://127.0.0.1:1"})
        assert found is not None
        with pytest.raises(RegistryFailed, match=r"http://127\.0\.0\.1:1: .*refused.*check"):
            Registry(found).schema(1)

    @pytest.mark.parametrize(
        ("properties", "message"),
        [
            ({"schema.registry.url": "ftp://x"}, "must begin with http"),
            ({"schema.registry.urll": "http://x"}, "unknown setting schema.registry.urll"),
            ({"schema.registry.bearer.auth.token": "t"}, "needs schema.registry.url"),
            (
                {"schema.registry.url": "http://x", "schema.registry.request.timeout.ms": "soon"},
                "must be a number",
            ),
        ],
    )
    def test_wrong_settings_are_named(self, properties: dict[str, str], message: str) -> None:
        with pytest.raises(BadRegistrySettings, match=message):
            RegistrySettings.parse(properties)

    def test_no_settings_mean_no_registry(self) -> None:
        assert RegistrySettings.parse({"acks": "all"}) is None


class TestFrame:
    def test_frame_is_a_zero_and_a_big_endian_id(self) -> None:
        assert framed(258, b"x") == b"\x00\x00\x00\x01\x02x"
        assert split_frame(b"\x00\x00\x00\x01\x02x") == (258, 5)

    @pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x"])
    def test_other_bytes_are_rejected(self, data: bytes) -> None:
        with pytest.raises(BadFrame):
            split_frame(data)


class TestAvro:
    def test_values_of_all_versions_have_the_readers_columns(
        self, registry: RegistryServer
    ) -> None:
        first = registry.add("orders-value", json.dumps(V1))
        second = registry.add("orders-value", json.dumps(V2))
        values = subject_values(settings(registry), "orders-value")
        assert values.columns.names == ["id", "note"]
        assert values.decode(framed(first, avro(V1, {"id": 1}))) == {"id": 1, "note": None}
        data = framed(second, avro(V2, {"id": 2, "note": "n"}))
        assert values.decode(data) == {"id": 2, "note": "n"}

    def test_older_reader_ignores_new_fields(self, registry: RegistryServer) -> None:
        first = registry.add("orders-value", json.dumps(V1))
        second = registry.add("orders-value", json.dumps(V2))
        reader = Registry(settings(registry)).schema(first)
        values = pickle.loads(pickle.dumps(RegistryValues(settings(registry), reader)))
        data = framed(second, avro(V2, {"id": 2, "note": "n"}))
        assert values.decode(data) == {"id": 2}

    def test_subject_of_another_strategy_is_found_by_a_sample(self, registry) -> None:
        number = registry.add("shop.Order", json.dumps(V1))
        data = framed(number, avro(V1, {"id": 1}))
        assert subject_values(settings(registry), "orders-value", data).decode(data) == {"id": 1}
        with pytest.raises(UnknownSchema, match="orders-value"):
            subject_values(settings(registry), "orders-value")

    def test_single_values_have_one_column(self, registry: RegistryServer) -> None:
        number = registry.add("orders-key", '"string"')
        values = subject_values(settings(registry), "orders-key")
        assert values.columns.names == ["value"]
        assert values.decode(framed(number, avro("string", "k"))) == {"value": "k"}

    def test_referenced_schemas_are_loaded(self, registry: RegistryServer) -> None:
        registry.add("city", json.dumps({**V1, "name": "City"}))
        whole = {
            "type": "record",
            "name": "Shop",
            "fields": [{"name": "at", "type": "City"}],
        }
        uses = [{"name": "City", "subject": "city", "version": 1}]
        number = registry.add("shop-value", json.dumps(whole), references=uses)
        values = subject_values(settings(registry), "shop-value")
        data = avro(V1, {"id": 4})
        assert values.decode(framed(number, data)) == {"at": {"id": 4}}

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"plain", "does not begin with a schema id"),
            (framed(77, b"\x02"), "schema id 77 is unknown"),
            (framed(1, b""), "not Avro of schema id 1"),
            (framed(1, b"\x02\x02"), "1 bytes remain"),
            (framed(2, b"{}"), "schema id 2 is JSON, not AVRO"),
        ],
    )
    def test_poison_values_have_a_reason(self, registry, data: bytes, reason: str) -> None:
        registry.add("orders-value", json.dumps(V1))
        registry.add("other-value", '{"type": "object"}', "JSON")
        with pytest.raises(ValueError, match=reason):
            subject_values(settings(registry), "orders-value").decode(data)

    def test_incompatible_writer_is_a_bad_value(self, registry: RegistryServer) -> None:
        registry.add("orders-value", json.dumps(V1))
        other = {**V1, "fields": [{"name": "id", "type": "string"}]}
        number = registry.add("elsewhere", json.dumps(other))
        values = subject_values(settings(registry), "orders-value")
        with pytest.raises(ValueError, match="not Avro"):
            values.decode(framed(number, avro(other, {"id": "x"})))

    def test_failing_registry_is_not_a_bad_value(self, registry: RegistryServer) -> None:
        number = registry.add("orders-value", json.dumps(V1))
        values = subject_values(settings(registry), "orders-value")
        values._registry._schemas.clear()
        registry.failing = 1
        with pytest.raises(RegistryFailed, match="status 500: out of order"):
            values.decode(framed(number, avro(V1, {"id": 1})))
        assert values.decode(framed(number, avro(V1, {"id": 1}))) == {"id": 1}  # not remembered

    @given(st.binary(max_size=40))
    def test_any_bytes_give_a_row_or_a_reason(self, data: bytes) -> None:
        with run_registry() as registry:
            registry.add("orders-value", json.dumps(V2))
            values = subject_values(settings(registry), "orders-value")
            for each in (data, framed(1, data)):
                with contextlib.suppress(ValueError):
                    assert set(values.decode(each)) == {"id", "note"}


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": ["null", "number"]},
        "where": {"$ref": "#/definitions/place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
    },
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


class TestJsonSchema:
    def test_fields_have_columns(self, registry: RegistryServer) -> None:
        number = registry.add("orders-value", json.dumps(JSON_SCHEMA), "JSON")
        values = subject_values(settings(registry), "orders-value")
        value = {
            "id": 1.0,
            "amount": 2,
            "where": {"city": "x", "zip": 1},
            "tags": ["a"],
            "more": {"n": 1},
            "any": [1],
            "unknown": 1,
        }
        assert values.decode(framed(number, json.dumps(value).encode())) == {
            "id": 1,
            "amount": 2.0,
            "where": {"city": "x"},
            "tags": ["a"],
            "more": [("n", 1)],
            "any": "[1]",
        }
        assert str(values.columns.field("where").type) == "struct<city: string>"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (b"{", "not JSON"),
            (b"[]", "not an object"),
            (b'{"id": "x"}', 'field id is "x", not int64'),
            (b'{"id": 1.5}', "field id is 1.5"),
        ],
    )
    def test_poison_values_have_a_reason(self, registry, text: bytes, reason: str) -> None:
        number = registry.add("orders-value", json.dumps(JSON_SCHEMA), "JSON")
        with pytest.raises(ValueError, match=reason):
            subject_values(settings(registry), "orders-value").decode(framed(number, text))

    def test_recursive_schema_is_rejected(self, registry: RegistryServer) -> None:
        recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
        registry.add("orders-value", json.dumps(recursive), "JSON")
        with pytest.raises(BadSchema, match="recursive"):
            subject_values(settings(registry), "orders-value")


def item_file(*, with_note: bool) -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    item = file.message_type.add(name="Item")
    item.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    item.field.add(
        name="at",
        number=2,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=kinds.LABEL_OPTIONAL,
    )
    if with_note:
        item.field.add(name="note", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    file.message_type.add(name="Other").nested_type.add(name="Inner")
    return file


def item(file: descriptor_pb2.FileDescriptorProto, **fields: object) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))
    return made(**fields).SerializeToString()


class TestProtobuf:
    def add(self, registry: RegistryServer, *, with_note: bool) -> int:
        text = base64.b64encode(item_file(with_note=with_note).SerializeToString()).decode()
        return registry.add("items-value", text, "PROTOBUF")

    def test_values_of_all_versions_have_the_readers_columns(
        self, registry: RegistryServer
    ) -> None:
        first, second = self.add(registry, with_note=False), self.add(registry, with_note=True)
        values = subject_values(settings(registry), "items-value")
        assert values.columns.names == ["id", "at", "note"]
        old = framed(first, b"\x00" + item(item_file(with_note=False), id=1))
        assert values.decode(old) == {"id": 1, "at": None, "note": ""}
        new = framed(second, b"\x02\x00" + item(item_file(with_note=True), id=2, note="n"))
        assert pickle.loads(pickle.dumps(values)).decode(new)["note"] == "n"

    @pytest.mark.parametrize(
        ("indexes", "reason"),
        [
            (b"\x02\x02", "the message is shop.Other, not shop.Item"),
            (b"\x04\x02\x00", "the message is shop.Other.Inner"),
            (b"\x02\x0e", "no message at"),
            (b"\x01", "malformed"),
            (b"\x04\x02", "cut off"),
            (b"\x00\xff", "not a Item"),
        ],
    )
    def test_poison_values_have_a_reason(self, registry, indexes: bytes, reason: str) -> None:
        number = self.add(registry, with_note=True)
        with pytest.raises(ValueError, match=reason):
            subject_values(settings(registry), "items-value").decode(framed(number, indexes))

    def test_schema_as_text_is_rejected_with_advice(self, registry: RegistryServer) -> None:
        registry.add("items-value", 'syntax = "proto3"; message M {}', "PROTOBUF")
        with pytest.raises(BadSchema, match="serialized form"):
            subject_values(settings(registry), "items-value")
