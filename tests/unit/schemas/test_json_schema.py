"""JSON Schemas beyond compatibility: references, patterns, canonical text, bounds."""

import json
from typing import ClassVar

import pytest
from tests.unit.schemas.language_tests import LanguageTests

from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, SchemaType
from ottla.schemas.json_schema.matching import matching_size
from ottla.schemas.languages import differences, parse

PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


class TestJsonSchema(LanguageTests):
    schema_type = SchemaType.JSON
    sample = json.dumps(PERSON)
    same_sample = json.dumps(PERSON, indent=2)
    sample_canonical = json.dumps(PERSON, separators=(",", ":"))
    other_sample = json.dumps({"type": "object", "properties": {"name": {"type": "integer"}}})
    samples: ClassVar[list[str]] = [
        sample,
        other_sample,
        "true",
        "{}",
        '{"type": ["string", "null"], "maxLength": 1E+2, "pattern": "^(?=a)"}',
        '{"oneOf": [{"$ref": "#/definitions/a"}, {"type": "null"}],'
        ' "definitions": {"a": {"type": "array", "items": {"$ref": "#"}}}}',
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#x", "type":'
        ' "object", "$defs": {"x": {"$anchor": "x", "prefixItems": [true], "items": false}}}',
        '{"$id": "http://a.b/c.json", "properties": {"p": {"$ref": "d.json"}},'
        ' "definitions": {"d": {"$id": "d.json", "type": "string"}}}',
        '{"$ref": "http://json-schema.org/draft-07/schema#"}',
    ]
    normalised_pair = ('{"type": "string", "title": "x"}', '{"title": "x", "type": "string"}')
    invalid: ClassVar[list[str]] = [
        "",
        "[]",
        "5",
        "{",
        '{"a":' * 5000,
        '{"type": "text"}',
        '{"type": 5}',
        '{"type": ["string", 5]}',
        '{"type": "object", "properties": []}',
        '{"type": "object", "properties": {"a": 5}}',
        '{"type": "object", "required": "a"}',
        '{"type": "object", "patternProperties": {"(": {}}}',
        '{"type": "string", "pattern": "["}',
        '{"type": "string", "pattern": 5}',
        '{"type": "string", "maxLength": "5"}',
        '{"type": "number", "multipleOf": true}',
        '{"enum": "a"}',
        '{"oneOf": {"type": "string"}}',
        '{"oneOf": ["string"]}',
        '{"not": 5}',
        '{"$ref": "#/definitions/none"}',
        '{"$ref": "http://example.com/other.json"}',
        '{"$ref": 5}',
        '{"$ref": "#"}',
        '{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}',
        '{"maximum": 1e99999999999999999999}',
        '{"maximum": NaN}',
    ]
    referring = json.dumps(
        {"type": "object", "properties": {"owner": {"$ref": "person.json#/properties/name"}}}
    )
    references: ClassVar[dict[str, str]] = {"person.json": sample}
    tagged_entity = SchemaEntity.of("object.age", EntityKind.FIELD)


def test_numbers_keep_their_digits() -> None:
    text = '{"maximum":1.50,"minimum":1E+3,"multipleOf":0.10}'
    assert parse(SchemaType.JSON, text).canonical == text


def test_a_reference_takes_part_in_the_comparison() -> None:
    referring, person = TestJsonSchema.referring, json.dumps(PERSON)
    changed = json.dumps({"properties": {"name": {"type": "integer"}}})
    old = parse(SchemaType.JSON, referring, {"person.json": person}, validate=True)
    new = parse(SchemaType.JSON, referring, {"person.json": changed}, validate=True)
    (difference,) = differences(new, old)
    assert (difference.rule, difference.path) == ("TYPE_CHANGED", "#/properties/owner")


def test_siblings_of_a_reference_count_from_2019_09_on() -> None:
    body = {"$ref": "#/definitions/a", "maxLength": 3, "definitions": {"a": {"type": "string"}}}
    tighter = {**body, "maxLength": 2}
    old, new = (parse(SchemaType.JSON, json.dumps(value)) for value in (body, tighter))
    assert differences(new, old) == []
    modern = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    old, new = (
        parse(SchemaType.JSON, json.dumps({**modern, **value})) for value in (body, tighter)
    )
    assert differences(new, old)


def test_names_that_the_registry_reserves_are_rejected_if_strict() -> None:
    schema = parse(SchemaType.JSON, '{"type": "object", "properties": {"$$a": {}}}', validate=True)
    with pytest.raises(InvalidSchema, match=r"\$\$a"):
        schema.validate(strict=True)


def test_patterns_are_not_run_by_a_backtracking_engine() -> None:
    name = "a" * 5_000 + "!"
    model = {"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}
    old = {"type": "object", "properties": {name: {"type": "string"}}, **model}
    new = {"type": "object", **model}
    reader, writer = (parse(SchemaType.JSON, json.dumps(value)) for value in (new, old))
    (difference,) = differences(reader, writer)
    assert difference.rule == "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"


def test_a_huge_cross_product_of_subschemas_is_rejected() -> None:
    def union(count: int, keyword: str) -> str:
        parts = [{"type": "object", "properties": {f"p{i}": {}}} for i in range(count)]
        return json.dumps({keyword: parts})

    one, other = (
        parse(SchemaType.JSON, union(800, "oneOf")),
        parse(SchemaType.JSON, union(801, "oneOf")),
    )
    with pytest.raises(InvalidSchema, match="pairs"):
        differences(one, other)


def test_definitions_that_refer_to_each_other_are_compared_once() -> None:
    def web(kind: str) -> str:
        names = [f"d{i}" for i in range(12)]
        definitions = {
            name: {"oneOf": [{"type": kind}, *({"$ref": f"#/definitions/{n}"} for n in names)]}
            for name in names
        }
        return json.dumps({"$ref": "#/definitions/d0", "definitions": definitions})

    same = differences(parse(SchemaType.JSON, web("string")), parse(SchemaType.JSON, web("string")))
    assert same == []
    assert differences(
        parse(SchemaType.JSON, web("string")), parse(SchemaType.JSON, web("integer"))
    )


def test_matching_is_the_largest() -> None:
    assert matching_size([[0, 1], [0], [1, 2]], 3) == 3
    assert matching_size([[0], [0], [0]], 3) == 1
    assert matching_size([[], [1]], 2) == 1
    chain = [[i, i + 1] for i in range(2_000)] + [[0]]
    assert matching_size(chain, 2_001) == 2_001
