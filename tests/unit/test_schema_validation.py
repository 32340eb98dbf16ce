"""Schema validation of Produce: which records a topic accepts, also of hostile bytes. Pure."""

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api.produce.schema_checks import _ParsedSchemas
from ottla.api.produce.schema_dead_letters import dead_letters, without_records
from ottla.api.produce.schema_rules import (
    BadRecord,
    SchemaRules,
    SchemaSource,
    StoredSchema,
    scan_batch,
)
from ottla.formats.payload_checks import STEPS_MAX, payload_check
from ottla.formats.wire_format import framed, guid_frame
from ottla.protocol.records.batch import Compression, is_crc_valid, read_header
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.schemas.contract import SchemaType
from ottla.schemas.languages import parse

GUID = "0b0e5f7c-3c1d-4f7a-9b2e-1a2b3c4d5e6f"
ORDER = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}
AVRO = SchemaSource(SchemaType.AVRO, json.dumps(ORDER))
STORED = {
    1: StoredSchema(frozenset({"orders-value"}), AVRO),
    2: StoredSchema(frozenset({"others-value"}), AVRO),
    3: StoredSchema(frozenset({"shop.Order", "orders-shop.Order"}), AVRO),
    GUID: StoredSchema(frozenset({"orders-value"}), AVRO),
}
IDS = SchemaRules(None, "TopicNameStrategy")


def batch_of(
    *records: tuple[bytes | None, bytes | None, dict[str, bytes | None]],
    compression: Compression = Compression.NONE,
) -> bytearray:
    made = [
        Record(
            Offset(index),
            Millis(1000 + index),
            key,
            value,
            tuple(Header(name, text) for name, text in headers.items()),
        )
        for index, (key, value, headers) in enumerate(records)
    ]
    return bytearray(build_batch(made, compression=compression))


def values(*data: bytes | None) -> bytearray:
    return batch_of(*((None, datum, {}) for datum in data))


def judge(batch: bytearray, rules: SchemaRules = IDS) -> list[BadRecord]:
    scan = scan_batch(batch, rules)
    return scan.judge("orders", rules, STORED, _ParsedSchemas().parse)


def reasons(batch: bytearray, rules: SchemaRules = IDS) -> dict[int, str]:
    return dict(judge(batch, rules))


class TestIds:
    def test_ids_and_guids_of_the_subject_and_nulls_are_accepted(self) -> None:
        by_header = (None, b"anything", {"x": b"1", "__value_schema_id": guid_frame(GUID)})
        by_prefix = (None, guid_frame(GUID) + b"x", {})
        plain = (None, framed(1, b"x"), {})
        assert judge(batch_of(plain, (None, None, {}), by_header, by_prefix)) == []

    def test_others_are_rejected_with_their_index_and_reason(self) -> None:
        found = reasons(values(framed(1, b""), framed(2, b""), framed(9, b""), b"{}", b"", None))
        assert sorted(found) == [1, 2, 3, 4]
        assert "schema id 2 is not a schema of subject orders-value" in found[1]
        assert "schema id 9 is unknown" in found[2]
        assert "does not name a schema" in found[3]

    def test_header_takes_precedence_over_the_value(self) -> None:
        unknown = guid_frame("ffffffff-3c1d-4f7a-9b2e-1a2b3c4d5e6f")
        found = reasons(batch_of((None, framed(1, b""), {"__value_schema_id": unknown})))
        assert "schema guid ffffffff-3c1d-4f7a-9b2e-1a2b3c4d5e6f is unknown" in found[0]

    @pytest.mark.parametrize("header", [b"", b"\1", b"\2" * 30, b"\0\0"])
    def test_malformed_header_is_rejected_or_ignored_if_empty(self, header: bytes) -> None:
        found = reasons(batch_of((None, framed(1, b""), {"__value_schema_id": header})))
        assert list(found) == ([] if not header else [0])

    def test_keys_are_validated_by_their_own_setting(self) -> None:
        rules = SchemaRules("TopicNameStrategy", None)
        found = reasons(batch_of((framed(1, b""), b"any", {}), (None, b"any", {})), rules)
        assert found == {0: "the key: schema id 1 is not a schema of subject orders-key"}

    @pytest.mark.parametrize("codec", list(Compression))
    def test_compressed_batches_are_read(self, codec: Compression) -> None:
        records = [(None, framed(1, b"x" * 50), {}), (None, b"poison", {})]
        assert list(reasons(batch_of(*records, compression=codec))) == [1]

    @given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1, max_size=20))
    def test_any_bytes_are_accepted_or_rejected(self, data: list[bytes | None]) -> None:
        found = judge(values(*data), SchemaRules("TopicNameStrategy", "RecordNameStrategy", True))
        assert [bad.batch_index for bad in found] == sorted({bad.batch_index for bad in found})
        assert all(data[bad.batch_index] is not None for bad in found)


class TestStrategies:
    @pytest.mark.parametrize("strategy", ["RecordNameStrategy", "TopicRecordNameStrategy"])
    def test_subject_is_named_by_the_record(self, strategy: str) -> None:
        found = reasons(values(framed(3, b"\2"), framed(1, b"\2")), SchemaRules(None, strategy))
        assert list(found) == [1]
        assert "is not a schema of subject" in found[1]

    def test_schema_without_a_name_is_rejected(self) -> None:
        stored = {1: StoredSchema(frozenset({"x"}), SchemaSource(SchemaType.AVRO, '"long"'))}
        rules = SchemaRules(None, "RecordNameStrategy")
        scan = scan_batch(values(framed(1, b"\2")), rules)
        (bad,) = scan.judge("orders", rules, stored, _ParsedSchemas().parse)
        assert "no record name" in bad.reason


class TestPayload:
    RULES: ClassVar = SchemaRules(None, "TopicNameStrategy", decodes_payload=True)

    def test_payload_must_be_of_its_schema(self) -> None:
        found = reasons(values(framed(1, b"\2"), framed(1, b""), framed(1, b"\2\2")), self.RULES)
        assert list(found) == [1, 2]
        assert "cut off" in found[1] and "1 bytes remain" in found[2]

    def test_no_record_is_accepted_after_the_time_limit(self) -> None:
        scan = scan_batch(values(framed(1, b"\2"), framed(1, b"\2")), self.RULES)
        bad = scan.judge("orders", self.RULES, STORED, _ParsedSchemas().parse, lambda: False)
        assert [record.batch_index for record in bad] == [0, 1]
        assert "too long" in bad[0].reason

    def test_schema_with_a_missing_reference_rejects(self) -> None:
        scan = scan_batch(values(framed(1, b"\2")), self.RULES)
        stored = {1: StoredSchema(frozenset({"orders-value"}), None)}
        (bad,) = scan.judge("orders", self.RULES, stored, _ParsedSchemas().parse)
        assert "refers to a schema that does not exist" in bad.reason


def check(kind: SchemaType, text: Any, payload: bytes, references: dict | None = None) -> None:
    schema = parse(kind, text if isinstance(text, str) else json.dumps(text), references)
    payload_check(schema)[1](payload, 0)


def is_valid(kind: SchemaType, text: Any, payload: bytes) -> bool:
    try:
        check(kind, text, payload)
    except ValueError:
        return False
    return True


EVERYTHING = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "a", "type": ["null", "int"]},
        {"name": "b", "type": {"type": "array", "items": "string"}},
        {"name": "c", "type": {"type": "map", "values": "double"}},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "e", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "f", "type": "boolean"},
        {"name": "g", "type": ["null", "All"]},
        {"name": "h", "type": "bytes"},
        {"name": "i", "type": "float"},
    ],
}


class TestAvroPayloads:
    def test_agrees_with_fastavro_on_what_it_writes(self) -> None:
        import io

        import fastavro

        inner = {"a": None, "b": [], "c": {}, "d": "X", "e": b"ab", "f": False, "g": None}
        inner |= {"h": b"", "i": 0.5}
        datum = {**inner, "a": 5, "b": ["x", "y"], "c": {"k": 1.5}, "d": "Y", "g": inner}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(EVERYTHING), datum)
        data = out.getvalue()
        check(SchemaType.AVRO, EVERYTHING, data)
        assert not any(is_valid(SchemaType.AVRO, EVERYTHING, data[:n]) for n in range(len(data)))

    @pytest.mark.parametrize(
        ("schema", "payload"),
        [
            ('"int"', b"\xff\xff\xff\xff\xff\x01"),
            ('"long"', b"\xff" * 11),
            ('"string"', b"\x02\xff"),
            ('"string"', b"\x01"),
            ('"bytes"', b"\xfe\xff\xff\xff\xff\xff\xff\xff\x01"),
            ('"boolean"', b"\x02"),
            ('["null"]', b"\x02"),
        ],
    )
    def test_malformed_payloads_are_rejected(self, schema: str, payload: bytes) -> None:
        assert not is_valid(SchemaType.AVRO, schema, payload)

    def test_a_long_array_of_nulls_ends_at_once(self) -> None:
        many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
        check(SchemaType.AVRO, {"type": "array", "items": "null"}, many + b"\0")

    def test_a_schema_that_doubles_at_each_level_ends(self) -> None:
        kind: Any = "null"
        for level in range(40):
            fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{level - 1}"}]
            kind = {
                "type": "record",
                "name": f"R{level}",
                "fields": fields if level else [{"name": "a", "type": "null"}],
            }
        with pytest.raises(ValueError, match=f"more than {STEPS_MAX} steps"):
            check(SchemaType.AVRO, kind, b"")

    @given(st.binary(max_size=60))
    def test_any_bytes_are_valid_or_rejected(self, data: bytes) -> None:
        is_valid(SchemaType.AVRO, EVERYTHING, data)


class TestJsonPayloads:
    ORDER: ClassVar = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"pattern": "^(a+)+$"}},
        "required": ["id"],
    }

    def test_values_are_validated_by_the_schema(self) -> None:
        check(SchemaType.JSON, self.ORDER, b'{"id": 1, "name": "aaa"}')
        for bad in (b"", b"{", b"[]", b'{"id": "x"}', b"{}", b'{"id": 1, "name": "b"}', b"\xff"):
            assert not is_valid(SchemaType.JSON, self.ORDER, bad), bad

    def test_a_hostile_pattern_is_matched_in_linear_time(self) -> None:
        value = json.dumps({"id": 1, "name": "a" * 5000 + "!"}).encode()
        assert not is_valid(SchemaType.JSON, self.ORDER, value)

    def test_unique_items_are_compared_in_linear_time(self) -> None:
        schema = {"type": "array", "uniqueItems": True}
        items = [{"n": n} for n in range(20_000)]
        check(SchemaType.JSON, schema, json.dumps(items).encode())
        assert not is_valid(SchemaType.JSON, schema, b'[{"a": 1}, {"a": 1.0}]')

    def test_deep_values_are_rejected(self) -> None:
        assert not is_valid(SchemaType.JSON, self.ORDER, b"[" * 100_000)

    def test_references_are_followed(self) -> None:
        schema = {"properties": {"at": {"$ref": "place.json"}}}
        references = {"place.json": '{"type": "string"}'}
        check(SchemaType.JSON, schema, b'{"at": "x"}', references)
        with pytest.raises(ValueError, match="is not of type"):
            check(SchemaType.JSON, schema, b'{"at": 1}', references)


class TestProtobufPayloads:
    FILE = 'syntax = "proto3"; package p; message A { string s = 1; message B { int32 n = 1; } }'

    @pytest.mark.parametrize(
        ("payload", "is_good"),
        [
            (b"\0\x0a\x01x", True),
            (b"\0", True),
            (b"\x04\0\0\x08\x05", True),
            (b"\0\x0a\x05x", False),
            (b"\0\x0a\x01\xff", False),
            (b"\x02\x0e", False),
            (b"", False),
        ],
    )
    def test_payload_is_parsed_by_the_message_at_its_path(
        self, payload: bytes, is_good: bool
    ) -> None:
        assert is_valid(SchemaType.PROTOBUF, self.FILE, payload) is is_good

    def test_record_name_is_that_of_the_message(self) -> None:
        name, _ = payload_check(parse(SchemaType.PROTOBUF, self.FILE))
        assert (name(b"\0", 0), name(b"\x04\0\0", 0)) == ("p.A", "p.A.B")


class TestDeadLetters:
    @pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
    def test_batch_keeps_the_offsets_of_the_other_records(self, codec: Compression) -> None:
        records = [(None, b"%d" % n, {}) for n in range(4)]
        batch = batch_of(*records, compression=codec)
        thinned = without_records(batch, [BadRecord(0, "x"), BadRecord(3, "x")])
        header = read_header(thinned)
        assert (header.records_count, header.last_offset_delta) == (2, 3)
        assert (header.max_timestamp, header.compression) == (1002, codec)
        assert is_crc_valid(thinned, 0, header)
        assert [(r.offset, r.value) for r in read_records(thinned)] == [(1, b"1"), (2, b"2")]

    def test_batch_without_records_is_empty(self) -> None:
        thinned = without_records(
            batch_of((None, b"x", {}), compression=Compression.GZIP), [BadRecord(0, "x")]
        )
        header = read_header(thinned)
        assert (header.records_count, header.last_offset_delta, header.max_timestamp) == (0, 0, -1)
        assert read_records(thinned) == []

    def test_letters_have_the_record_and_its_origin(self) -> None:
        batch = batch_of((b"k", b"v", {"h": b"1"}), (None, b"w", {}))
        (piece,) = dead_letters(
            batch, [BadRecord(0, "why")], TopicPartition("orders", 3), Millis(9)
        )
        (letter,) = piece
        assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", 9)
        assert dict(letter.headers) == {
            "h": b"1",
            "__dlq.errors.topic": b"orders",
            "__dlq.errors.partition": b"3",
            "__dlq.errors.message": b"why",
        }

    def test_large_letters_are_written_in_pieces(self) -> None:
        batch = values(*(bytes(300_000) for _ in range(3)))
        bad = [BadRecord(index, "why") for index in range(3)]
        pieces = list(dead_letters(batch, bad, TopicPartition("orders", 0), Millis(9)))
        assert [len(piece) for piece in pieces] == [1, 1, 1]
