"""Decoding of Avro and Protobuf values into columns."""

import datetime
import decimal
import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.formats.avro_values import AvroValues
from ottla.formats.protobuf_values import ProtobufValues
from ottla.formats.schema_bounds import BadSchema
from ottla.tables.job import REASON_COLUMN
from ottla.tables.value_decoding import decode_batch

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "before", "type": ["null", "State"]},
    ],
}
DATUM = {
    "id": 7,
    "amount": None,
    "state": "PAID",
    "at": datetime.datetime(2026, 11, 16, 4, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 11, 16),
    "tags": ["a", "b"],
    "more": {"x": 1},
    "price": decimal.Decimal("12.50"),
    "trace": "00000000-0000-4000-8000-000000000000",
    "before": "NEW",
}


def written(datum=DATUM, schema=ORDER) -> bytes:
    out = io.BytesIO()
    plain = json.loads(json.dumps(schema).replace('"logicalType": "uuid"', '"plain": "uuid"'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), datum)
    return out.getvalue()


def columns_of(values, *args):
    batch = pa.record_batch([pa.array(args, pa.binary())], names=["value"])
    return decode_batch(batch, pickle.loads(pickle.dumps(values))).to_pylist()


class TestAvro:
    def test_every_type_maps_to_a_column(self):
        values = AvroValues(json.dumps(ORDER))
        assert [str(each.type) for each in values.columns] == [
            "int64",
            "double",
            "string",
            "timestamp[us, tz=UTC]",
            "date32[day]",
            "list<item: string>",
            "map<string, int32>",
            "decimal128(9, 2)",
            "string",
            "string",
        ]
        (row,) = columns_of(values, written())
        row["more"] = dict(row["more"])
        assert row.pop("value") == written()
        assert row == {**DATUM, REASON_COLUMN: None}

    def test_bad_values_have_a_reason_and_do_not_affect_others(self):
        values = AvroValues(json.dumps(ORDER))
        good, short = written(), written()[:-3]
        rows = columns_of(values, good, short, None, good + b"!", b"\xff" * 40)
        assert [each["id"] for each in rows] == [7, None, None, None, None]
        reasons = [each[REASON_COLUMN] for each in rows]
        assert reasons[0] is None
        assert "not Avro" in reasons[1]
        assert reasons[2] == "the value is null"
        assert "1 bytes remain" in reasons[3]
        assert reasons[4]

    def test_schema_registry_frame_is_skipped(self):
        values = AvroValues(json.dumps(ORDER), framed=True)
        rows = columns_of(values, b"\0\0\0\0\7" + written(), written(), b"\0")
        assert [each["id"] for each in rows] == [7, None, None]
        assert "does not begin with a schema id" in rows[1][REASON_COLUMN]

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ("{", "not an Avro schema"),
            ('"int"', "must be a record"),
            (json.dumps({"type": "record", "name": "A", "fields": 1}), "not an Avro schema"),
            (
                json.dumps(
                    {
                        "type": "record",
                        "name": "A",
                        "fields": [{"name": "u", "type": ["int", "string"]}],
                    }
                ),
                "u: a union of 2 types",
            ),
            (
                json.dumps(
                    {
                        "type": "record",
                        "name": "A",
                        "fields": [{"name": "next", "type": ["null", "A"]}],
                    }
                ),
                "recursive",
            ),
        ],
    )
    def test_unsupported_schema_error_names_the_field(self, schema, message):
        with pytest.raises(BadSchema, match=message):
            AvroValues(schema)

    @given(st.binary(max_size=60))
    @settings(max_examples=150, deadline=None)
    def test_arbitrary_bytes_give_a_row_or_a_reason(self, value):
        (row,) = columns_of(AvroValues(json.dumps(ORDER)), value)
        assert (row[REASON_COLUMN] is None) == (row["id"] is not None)


def descriptors() -> bytes:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    stamp = descriptor_pb2.FileDescriptorProto(name="ts.proto", package="google.protobuf")
    time = stamp.message_type.add(name="Timestamp")
    time.field.add(name="seconds", number=1, type=field.TYPE_INT64, label=1)
    time.field.add(name="nanos", number=2, type=field.TYPE_INT32, label=1)
    file.dependency.append("ts.proto")
    kind = file.enum_type.add(name="State")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT32, label=1)
    order.field.add(name="total", number=2, type=field.TYPE_UINT64, label=1)
    order.field.add(name="state", number=3, type=field.TYPE_ENUM, label=1, type_name=".shop.State")
    order.field.add(name="tags", number=4, type=field.TYPE_STRING, label=3)
    order.field.add(
        name="at",
        number=5,
        type=field.TYPE_MESSAGE,
        label=1,
        type_name=".google.protobuf.Timestamp",
    )
    entry = order.nested_type.add(name="MoreEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=1)
    order.field.add(
        name="more",
        number=6,
        type=field.TYPE_MESSAGE,
        label=3,
        type_name=".shop.Order.MoreEntry",
    )
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=1)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="child", number=1, type=field.TYPE_MESSAGE, label=1, type_name=".shop.Tree")
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


def order(**fields) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(each)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    at = fields.pop("at", None)
    for name, value in fields.items():
        if name == "tags":
            message.tags.extend(value)
        elif name == "more":
            message.more.update(value)
        else:
            setattr(message, name, value)
    if at is not None:
        message.at.seconds = at
    return message.SerializeToString()


class TestProtobuf:
    def test_every_type_maps_to_a_column(self):
        values = ProtobufValues(descriptors(), "shop.Order")
        value = order(id=7, total=9, state=1, tags=["a"], at=1, more={"x": 0.5}, raw=b"\1")
        (row,) = columns_of(values, value)
        assert row == {
            "id": 7,
            "total": 9,
            "state": "PAID",
            "tags": ["a"],
            "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            "more": [("x", 0.5)],
            "raw": b"\1",
            "value": value,
            REASON_COLUMN: None,
        }

    def test_unset_fields_are_null_or_default(self):
        (row,) = columns_of(ProtobufValues(descriptors(), "shop.Order"), order(id=7))
        assert row["at"] is None
        assert (row["total"], row["state"], row["tags"], row["more"]) == (0, "NEW", [], [])

    def test_bad_values_have_a_reason(self):
        values = ProtobufValues(descriptors(), "shop.Order")
        rows = columns_of(values, b"\xff", order(total=2**64 - 1), order(state=5))
        assert "not a Order" in rows[0][REASON_COLUMN]
        assert "does not fit a bigint" in rows[1][REASON_COLUMN]
        assert rows[2]["state"] == "5"

    def test_schema_registry_frame_is_skipped(self):
        values = ProtobufValues(descriptors(), "shop.Order", framed=True)
        frame = b"\0\0\0\0\7"
        rows = columns_of(
            values, frame + b"\0" + order(id=1), frame + b"\4\0\2" + order(id=2), order(id=3), frame
        )
        assert [each["id"] for each in rows] == [1, 2, None, None]

    @pytest.mark.parametrize(
        ("content", "name", "reason"),
        [
            (b"\xff", "shop.Order", "not a set"),
            (descriptors(), "shop.Odrer", "no message 'shop.Odrer'"),
            (descriptors(), "shop.Tree", "recursive"),
        ],
    )
    def test_unsupported_schema_error_names_the_reason(self, content, name, reason):
        with pytest.raises(BadSchema, match=reason):
            ProtobufValues(content, name)
