"""Both wire formats of Confluent's serializers, and registries that brokers publish."""

import io
import uuid

import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from ottla.formats.registry_discovery import (
    ADVERTISED,
    LISTENERS,
    RegistryNotFound,
    registry_url,
)
from ottla.formats.wire_format import (
    BadFrame,
    framed_part,
    guid_frame,
    id_frame,
    is_framed,
    split_frame,
    split_indexes,
)

GUID = "0b0e5f7c-3c1d-4f7a-9b2e-1a2b3c4d5e6f"


class TestFrames:
    def test_frames_are_those_of_confluents_serializers(self) -> None:
        assert id_frame(258) == SchemaId("AVRO", 258).id_to_bytes()
        assert guid_frame(GUID) == SchemaId("AVRO", guid=GUID).guid_to_bytes()

    def test_id_and_guid_are_split_from_the_payload(self) -> None:
        assert split_frame(id_frame(7) + b"x") == (7, 5)
        assert split_frame(guid_frame(GUID) + b"x") == (GUID, 17)
        assert uuid.UUID(str(split_frame(guid_frame(GUID))[0])) == uuid.UUID(GUID)

    @pytest.mark.parametrize(
        "data", [b"", b"\0", b"\0\0\0\1", b"\1" + bytes(15), b"\2" + bytes(20), b"{}", b"\xff" * 30]
    )
    def test_bytes_without_a_frame_are_rejected(self, data: bytes) -> None:
        assert not is_framed(data)
        with pytest.raises(BadFrame):
            split_frame(data)

    @given(st.binary(max_size=40))
    def test_any_bytes_are_a_frame_or_rejected(self, data: bytes) -> None:
        try:
            _, start = split_frame(data)
        except BadFrame:
            assert not is_framed(data)
        else:
            assert is_framed(data) and start <= len(data)

    def test_a_guid_of_another_length_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="not a guid"):
            guid_frame("0b0e5f7c")


class TestHeaders:
    def test_header_is_put_before_the_payload(self) -> None:
        headers = [("other", b"1"), ("__value_schema_id", guid_frame(GUID))]
        data = framed_part("value", b"payload", headers)
        assert data == guid_frame(GUID) + b"payload"
        assert framed_part("key", b"payload", headers) == b"payload"

    def test_null_stays_null_and_a_null_header_is_ignored(self) -> None:
        assert framed_part("value", None, [("__value_schema_id", guid_frame(GUID))]) is None
        assert framed_part("value", b"x", [("__value_schema_id", None)]) == b"x"


class TestMessageIndexes:
    @pytest.mark.parametrize("path", [[0], [1], [0, 0], [2, 1, 300]])
    def test_paths_are_those_of_confluents_serializers(self, path: list[int]) -> None:
        data = SchemaId("PROTOBUF", 1, None, path).id_to_bytes() + b"rest"
        assert split_indexes(data, 5) == (path, len(data) - 4)
        read = SchemaId("PROTOBUF")
        read.from_bytes(io.BytesIO(data))
        assert read.message_indexes == path

    @pytest.mark.parametrize(
        "data",
        [b"", b"\x80", b"\x02", b"\x01", b"\xff\xff\xff\xff\xff\xff", b"\xfe\xff\x03", b"\x02\x01"],
    )
    def test_malformed_paths_are_rejected(self, data: bytes) -> None:
        with pytest.raises(BadFrame):
            split_indexes(data, 0)

    @given(st.binary(max_size=100))
    def test_any_bytes_are_a_path_or_rejected(self, data: bytes) -> None:
        try:
            indexes, end = split_indexes(data, 0)
        except BadFrame:
            return
        assert all(index >= 0 for index in indexes) and 0 < end <= len(data)


class TestPublishedRegistry:
    @pytest.mark.parametrize(
        ("settings", "host", "url"),
        [
            ({}, "10.0.0.1", None),
            ({LISTENERS: "http://127.0.0.1:8081"}, "localhost", "http://127.0.0.1:8081"),
            ({LISTENERS: "http://0.0.0.0:8081"}, "10.0.0.1", "http://10.0.0.1:8081"),
            ({LISTENERS: "https://[::]:8081"}, "fe80::1", "https://[fe80::1]:8081"),
            ({LISTENERS: "https://reg.example:8081/"}, "b1.example", "https://reg.example:8081"),
            (
                {LISTENERS: "http://127.0.0.1:8081", ADVERTISED: "https://reg.example"},
                "b1.example",
                "https://reg.example",
            ),
        ],
    )
    def test_address_follows_from_the_settings(
        self, settings: dict[str, str], host: str, url: str | None
    ) -> None:
        assert registry_url(settings, host) == url

    @pytest.mark.parametrize(
        ("listener", "reason"),
        [("http://127.0.0.1:8081", "only its own machine"), ("http://0.0.0.0:0", "port")],
    )
    def test_address_that_cannot_be_used_from_here_is_rejected(
        self, listener: str, reason: str
    ) -> None:
        with pytest.raises(RegistryNotFound, match=reason):
            registry_url({LISTENERS: listener}, "broker-1.example")
