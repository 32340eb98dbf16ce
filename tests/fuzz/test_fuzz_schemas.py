"""Mutated schemas: every parser returns or raises InvalidSchema, within a bounded time."""

import base64
import contextlib
import json
import time
from random import Random

import pytest
from tests.fuzz.mutations import mutated
from tests.patience import SECONDS_MAX
from tests.unit.schemas.test_avro import TestAvro as AvroSamples
from tests.unit.schemas.test_json_schema import TestJsonSchema as JsonSamples
from tests.unit.schemas.test_protobuf import TestProtobuf as ProtobufSamples

from ottla.schemas.contract import InvalidSchema, SchemaType
from ottla.schemas.languages import differences, parse

ROUNDS = 600
SEED = 30
SAMPLES = {
    SchemaType.AVRO: AvroSamples.samples,
    SchemaType.JSON: JsonSamples.samples,
    SchemaType.PROTOBUF: ProtobufSamples.samples,
}
MEGABYTE = 1 << 20


def use(schema_type: SchemaType, text: str, other: str) -> bool:
    """Do everything with a text; return whether it is a schema."""
    try:
        schema = parse(schema_type, text, validate=True)
    except InvalidSchema:
        return False
    try:
        again = parse(schema_type, schema.canonical)
        assert again.canonical == schema.canonical
        schema.normalised()
        schema.formatted("serialized")
        schema.formatted("resolved")
        differences(schema, parse(schema_type, other))
        differences(parse(schema_type, other), schema)
        assert schema.tags is not None
    except InvalidSchema:
        pass
    return True


@pytest.mark.parametrize("schema_type", list(SchemaType), ids=lambda value: value.value)
def test_mutated_schemas_raise_nothing_but_invalid_schema(schema_type: SchemaType) -> None:
    random = Random(SEED)
    samples = SAMPLES[schema_type]
    accepted = 0
    for _ in range(ROUNDS):
        data, other = random.choice(samples).encode(), random.choice(samples).encode()
        text = mutated(data, random, other).decode(errors="replace")
        accepted += use(schema_type, text, samples[0])
    assert accepted > 0, "mutations never gave a schema: nothing beyond the parser was reached"


def test_mutated_descriptors_raise_nothing_but_invalid_schema() -> None:
    random = Random(SEED)
    samples = SAMPLES[SchemaType.PROTOBUF]
    descriptors = [
        base64.b64decode(parse(SchemaType.PROTOBUF, text).formatted("serialized"))
        for text in samples
    ]
    for _ in range(ROUNDS):
        data = mutated(random.choice(descriptors), random, random.choice(descriptors))
        use(SchemaType.PROTOBUF, base64.b64encode(data).decode(), samples[0])


def swapped(node: object, random: Random) -> object:
    """A JSON value in which parts are replaced by other JSON values."""
    if random.random() < 0.06:
        return random.choice([None, True, 5, -1, 1e300, "", "string", "R", [], {}, [{}], {"a": 1}])
    if isinstance(node, dict):
        return {key: swapped(value, random) for key, value in node.items()}
    if isinstance(node, list):
        return [swapped(value, random) for value in node]
    return node


@pytest.mark.parametrize("schema_type", [SchemaType.AVRO, SchemaType.JSON], ids=lambda t: t.value)
def test_json_with_swapped_parts_raises_nothing_but_invalid_schema(schema_type: SchemaType) -> None:
    random = Random(SEED)
    samples = SAMPLES[schema_type]
    for _ in range(ROUNDS):
        node = swapped(json.loads(random.choice(samples)), random)
        use(schema_type, json.dumps(node), samples[0])


def repeated(start: str, part: str, end: str, separator: str = "") -> str:
    count = MEGABYTE // len(part)
    return start + separator.join(part.replace("#", str(20_000 + i)) for i in range(count)) + end


HUGE = {
    "avro fields": (
        SchemaType.AVRO,
        repeated('{"type":"record","name":"R","fields":[', '{"name":"f#","type":"int"}', "]}", ","),
    ),
    "avro records": (
        SchemaType.AVRO,
        repeated("[", '{"type":"record","name":"R#","fields":[]}', "]", ","),
    ),
    "avro redefinitions": (
        SchemaType.AVRO,
        repeated(
            '{"type":"record","name":"R","fields":[',
            '{"name":"f#","type":{"type":"fixed","name":"F","size":1}}',
            "]}",
            ",",
        ),
    ),
    "avro brackets": (SchemaType.AVRO, "[" * MEGABYTE),
    "json properties": (
        SchemaType.JSON,
        repeated('{"type":"object","properties":{', '"p#":{"type":"string"}', "}}", ","),
    ),
    "json subschemas": (
        SchemaType.JSON,
        repeated('{"oneOf":[', '{"type":"string","minLength":#}', "]}", ","),
    ),
    "json patterns": (
        SchemaType.JSON,
        repeated(
            '{"type":"object","patternProperties":{', '"(a+)+#$":{"type":"string"}', "}}", ","
        ),
    ),
    "json braces": (SchemaType.JSON, '{"not":' * (MEGABYTE // 7)),
    "protobuf fields": (
        SchemaType.PROTOBUF,
        repeated('syntax = "proto3"; message M {', "int32 a# = #;", "}"),
    ),
    "protobuf messages": (
        SchemaType.PROTOBUF,
        repeated('syntax = "proto3"; ', "message M# { M20000 a = 1; }", ""),
    ),
    "protobuf oneofs": (
        SchemaType.PROTOBUF,
        repeated('syntax = "proto3"; message M {', "oneof o# { int32 f# = #; }", "}"),
    ),
    "protobuf comment": (SchemaType.PROTOBUF, "/*" + "*" * MEGABYTE),
    "protobuf braces": (SchemaType.PROTOBUF, "message M {" * (MEGABYTE // 11)),
    "protobuf aggregate": (SchemaType.PROTOBUF, "option (a) = " + "{a:" * (MEGABYTE // 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_huge_schemas_end_within_a_bounded_time(name: str) -> None:
    schema_type, text = HUGE[name]
    began = time.process_time()
    if use(schema_type, text, SAMPLES[schema_type][0]):
        with contextlib.suppress(InvalidSchema):  # too many pairs to compare
            differences(parse(schema_type, text), parse(schema_type, text))
    # Generous, because slower machines run it, too; quadratic work would take minutes.
    assert time.process_time() - began < SECONDS_MAX / 4
