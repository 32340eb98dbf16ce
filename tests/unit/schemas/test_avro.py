"""Avro schemas beyond compatibility: names, canonical text, references, defaults, bounds."""

import json
from typing import ClassVar

import pytest
from tests.unit.schemas.language_tests import LanguageTests

from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, SchemaType
from ottla.schemas.languages import differences, parse

RECORD = {
    "type": "record",
    "name": "User",
    "namespace": "com.acme",
    "doc": "A user",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"], "default": None, "order": "ignore"},
    ],
}


def avro(value: object, **options: bool) -> str:
    return parse(SchemaType.AVRO, json.dumps(value), **options).canonical


class TestAvro(LanguageTests):
    schema_type = SchemaType.AVRO
    sample = json.dumps(RECORD)
    same_sample = json.dumps(
        {key: RECORD[key] for key in ("fields", "doc", "name", "namespace", "type")}, indent=3
    )
    sample_canonical = (
        '{"type":"record","name":"User","namespace":"com.acme","doc":"A user","fields":['
        '{"name":"id","type":"long"},'
        '{"name":"mail","type":["null","string"],"default":null,"order":"ignore"}]}'
    )
    other_sample = json.dumps({"type": "record", "name": "com.acme.User", "fields": []})
    samples: ClassVar[list[str]] = [
        sample,
        other_sample,
        '"string"',
        '["null", {"type": "fixed", "name": "F", "size": 3, "aliases": ["G", "b.H"]}]',
        '{"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A", "doc": ""}',
        '{"type": "array", "items": {"type": "map", "values": "bytes"}, "x": {"b": 1, "a": [2]}}',
        '{"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 9}',
        '{"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]},'
        ' {"name": "d", "type": "double", "default": 1e9, "aliases": ["z", "y"]}]}',
    ]
    normalised_pair = (
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"long","b":1,"a":2}}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"long","a":2,"b":1}}]}',
    )
    invalid: ClassVar[list[str]] = [
        "",
        "string",
        '"nothing"',
        "{",
        "[" * 5000,
        "5",
        "null",
        "{}",
        '{"type": 5}',
        '{"type": {"type": "string"}}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "1R", "fields": []}',
        '{"type": "record", "name": "a-b.R", "fields": []}',
        '{"type": "record", "name": "int", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "record", "name": "R", "fields": [{"type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [5]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "order": "x"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"},'
        ' {"name": "a", "type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}',
        '{"type": "record", "name": "R", "aliases": "x", "fields": []}',
        '{"type": "enum", "name": "E"}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type": "enum", "name": "E", "symbols": ["a b"]}',
        '{"type": "enum", "name": "E", "symbols": [5]}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
        '{"type": "fixed", "name": "F"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": true}',
        '{"type": "array"}',
        '{"type": "map"}',
        '["int", "int"]',
        '["int", ["string"]]',
        '[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}]',
        '{"type": "fixed", "name": "F", "size": ' + "9" * 5000 + "}",
    ]
    referring = json.dumps(
        {"type": "record", "name": "a.Order", "fields": [{"name": "user", "type": "com.acme.User"}]}
    )
    references: ClassVar[dict[str, str]] = {"com.acme.User": sample}
    tagged_entity = SchemaEntity.of("com.acme.User.id", EntityKind.FIELD)


def test_canonical_text_has_the_attribute_order_of_avro() -> None:
    enum = {"aliases": ["F"], "x": 1, "default": "A", "symbols": ["A"], "doc": "d", "name": "n.E"}
    assert avro({**enum, "type": "enum"}) == (
        '{"type":"enum","name":"E","namespace":"n","doc":"d","symbols":["A"],"default":"A","x":1,'
        '"aliases":["F"]}'
    )
    fixed = {"x": [1], "size": 2, "name": "F", "type": "fixed"}
    assert avro(fixed) == '{"type":"fixed","name":"F","size":2,"x":[1]}'
    assert avro({"type": "string"}) == '"string"'
    assert avro({"values": "int", "type": "map"}) == '{"type":"map","values":"int"}'


def test_canonical_text_names_types_relative_to_the_namespace() -> None:
    inner = {"type": "fixed", "name": "b.F", "size": 1}
    fields = [
        {"name": "x", "type": inner},
        {"name": "y", "type": "b.F"},
        {"name": "z", "type": {"type": "record", "name": "S", "namespace": "", "fields": []}},
        {"name": "w", "type": "R"},
    ]
    record = {"type": "record", "name": "R", "namespace": "a", "fields": fields}
    assert avro(record) == (
        '{"type":"record","name":"R","namespace":"a","fields":['
        '{"name":"x","type":{"type":"fixed","name":"F","namespace":"b","size":1}},'
        '{"name":"y","type":"b.F"},'
        '{"name":"z","type":{"type":"record","name":"S","namespace":"","fields":[]}},'
        '{"name":"w","type":"R"}]}'
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("1", "1"),
        ("1.0", "1.0"),
        ("1.50", "1.5"),
        ("1e7", "1.0E7"),
        ("12345678.5", "1.23456785E7"),
        ("1e300", "1.0E300"),
        ("0.001", "0.001"),
        ("0.0001", "1.0E-4"),
        ("-0.00012", "-1.2E-4"),
        ("-1e22", "-1.0E22"),
    ],
)
def test_numbers_are_printed_as_java_prints_them(number: str, text: str) -> None:
    schema = f'{{"type":"int","x":{number}}}'
    assert parse(SchemaType.AVRO, schema).canonical == f'{{"type":"int","x":{text}}}'


def test_resolved_format_contains_the_types_of_references() -> None:
    schema = parse(SchemaType.AVRO, TestAvro.referring, TestAvro.references)
    assert '"com.acme.User"' in schema.canonical
    assert "mail" not in schema.canonical
    resolved = schema.formatted("resolved")
    assert "mail" in resolved
    assert differences(parse(SchemaType.AVRO, resolved), schema) == []


def test_normalising_orders_the_logical_type_first() -> None:
    schema = {"type": "bytes", "a": 1, "scale": 2, "precision": 9, "logicalType": "decimal"}
    normalised = parse(SchemaType.AVRO, json.dumps(schema)).normalised().canonical
    assert normalised == ('{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"a":1}')


def test_stored_schemas_may_break_rules_for_new_ones() -> None:
    for value in (
        {"type": "record", "name": "a-b.R", "fields": []},
        {"type": "record", "name": "Größe", "fields": []},
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": "int", "default": "x"}],
        },
    ):
        schema = parse(SchemaType.AVRO, json.dumps(value))
        with pytest.raises(InvalidSchema):
            schema.validate(strict=True)


def test_a_default_of_nested_unions_is_checked_in_linear_time() -> None:
    value: object = 5
    for _ in range(60):
        value = {"x": value}
    inner = {
        "type": "record",
        "name": "A",
        "fields": [
            {
                "name": "x",
                "type": [
                    "null",
                    "A",
                    {
                        "type": "record",
                        "name": "B",
                        "fields": [{"name": "x", "type": ["null", "A", "B"]}],
                    },
                ],
            }
        ],
    }
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": inner, "default": value}],
    }
    with pytest.raises(InvalidSchema, match="default"):
        parse(SchemaType.AVRO, json.dumps(schema), validate=True)


def cycle(length: int, kind: str) -> str:
    """A ring of records, whose last one holds a field of ``kind``."""
    type_: object = ["null", "R0", kind]
    for index in reversed(range(length)):
        field = {"name": "next", "type": type_}
        type_ = {"type": "record", "name": f"R{index}", "aliases": [], "fields": [field]}
    return json.dumps(type_)


def test_comparing_rings_of_different_length_needs_no_deep_stack() -> None:
    # Names differ, so that every pair of the two rings is compared.
    one, other = (
        parse(SchemaType.AVRO, cycle(length, "int").replace('"R', f'"{name}'))
        for length, name in ((40, "A"), (41, "B"))
    )
    assert differences(one, other)


def test_a_difference_that_occurs_everywhere_is_reported_a_bounded_number_of_times() -> None:
    def doubling(kind: str) -> str:
        fields = [{"name": "v", "type": kind}]
        types: list[object] = [{"type": "record", "name": "R0", "fields": fields}]
        for index in range(1, 40):
            fields = [{"name": name, "type": f"R{index - 1}"} for name in "ab"]
            types.append({"type": "record", "name": f"R{index}", "fields": fields})
        return json.dumps({"type": "array", "items": types})

    one, other = (parse(SchemaType.AVRO, doubling(kind)) for kind in ("int", "string"))
    assert 1 <= len(differences(one, other)) <= 1000


def test_types_nested_through_names_are_bounded() -> None:
    types: list[object] = [{"type": "record", "name": "R0", "fields": []}]
    for index in range(1, 2000):
        fields = [{"name": "a", "type": f"R{index - 1}"}]
        types.append({"type": "record", "name": f"R{index}", "fields": fields})
    with pytest.raises(InvalidSchema, match="levels"):
        parse(SchemaType.AVRO, json.dumps(types))
