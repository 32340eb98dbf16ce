"""The bytes of requests and replies are those of kio's own writer and reader."""

import dataclasses
import datetime
import io
import uuid
from pkgutil import resolve_name

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.differential import wire

EVERY = [(api, version) for api in api_key_map.values() for version in schema_name_map[api]]


def sample(shape: wire.Shape, depth: int = 0) -> dict[str, object]:
    """Return values for every field: arrays of one item, numbers and texts that are no defaults."""
    values: dict[str, object] = {}
    for field in shape.fields:
        one: object
        if field.inner is not None:
            one = sample(field.inner, depth + 1)
        elif field.kind == "uuid":
            one = uuid.UUID(int=(3 << 96) + depth)
        elif field.kind in ("bytes", "records"):
            one = b"bytes"
        else:
            plain = {"string": "text", "bool": True, "float64": 1.5, "error_code": 3}
            one = plain.get(field.kind, 5000)
            one = 5 if field.kind in ("int8", "int16", "uint16") else one
        values[field.name] = [one] if field.is_array else one
    return values


def built(entity: type, values: dict[str, object]) -> object:
    """Return the same values as an object of kio's."""
    shape = wire.shape_of(entity)
    arguments: dict[str, object] = {}
    for spec, field in zip(shape.fields, dataclasses.fields(entity), strict=True):
        element = wire._unwrap(field.type)[0]
        items = values[spec.name] if spec.is_array else [values[spec.name]]
        made = [_kio_value(spec, element, item) for item in items]
        arguments[spec.name] = tuple(made) if spec.is_array else made[0]
    return entity(**arguments)


def _kio_value(spec: wire.Field, element: object, item: object) -> object:
    if spec.inner is not None:
        return built(element, item)
    if spec.kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=item)
    if spec.kind == "datetime_i64":
        return datetime.datetime.fromtimestamp(item / 1000, datetime.UTC)
    if spec.kind == "error_code":
        from kio.schema.errors import ErrorCode

        return ErrorCode(item)
    return item


@pytest.mark.parametrize("side", [EntityType.request, EntityType.response])
def test_encoded_messages_equal_those_of_kio(side: EntityType) -> None:
    compared = 0
    for api, version in EVERY:
        entity = resolve_name(schema_name_map[api][version][side])
        shape = wire.shape_of(entity)
        values = sample(shape)
        ours = bytearray()
        wire.write_struct(ours, shape, values)
        theirs = io.BytesIO()
        entity_writer(entity)(theirs, built(entity, values))
        assert bytes(ours) == theirs.getvalue(), (api, version)
        compared += 1
    assert compared > 250


def test_decoded_replies_hold_every_value_that_was_encoded() -> None:
    for api, version in EVERY:
        shape = wire.response_shape(api, version)
        values = sample(shape)
        raw = bytearray(b"\0\0\0\1")
        raw += b"\0" if shape.header.is_flexible else b""
        wire.write_struct(raw, shape, values)
        assert wire.decode_response(api, version, bytes(raw)) == values, (api, version)
        with pytest.raises(wire.Malformed):
            wire.decode_response(api, version, bytes(raw) + b"\0")
        with pytest.raises(wire.Malformed):
            wire.decode_response(api, version, bytes(raw[:-1]))


def test_a_length_beyond_the_reply_is_malformed() -> None:
    with pytest.raises(wire.Malformed):
        wire.decode_response("list_groups", 0, b"\0\0\0\1" + b"\0\0" + b"\x7f\xff\xff\xff")


def test_null_and_extreme_values_can_be_written_where_kio_rejects_them() -> None:
    out = bytearray()
    shape = wire.request_shape("create_topics", 7)
    wire.write_struct(out, shape, {"topics": [{"name": None}], "timeout": -(1 << 31)})
    assert bytes(out).startswith(b"\x02\x00")
    assert b"\x80\0\0\0" in out


def test_kio_reads_what_a_request_with_defaults_says() -> None:
    raw = wire.encode_request("metadata", 12, {"topics": None}, 7)
    entity = resolve_name(schema_name_map["metadata"][12][EntityType.request])
    header = 8 + 2 + len("differential") + 1
    request, _ = entity_reader(entity)(raw, header)
    assert request.topics is None
