"""What is called compatible can be read: random schemas, and data through independent libraries."""

import io
import json
import random
from typing import Any

import fastavro
import jsonschema
from google.protobuf import descriptor_pool, message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas.contract import ParsedSchema, SchemaType
from ottla.schemas.languages import differences, parse

PROFILE = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


def is_compatible(level: str, new: ParsedSchema, old: ParsedSchema) -> bool:
    pairs = {"BACKWARD": [(new, old)], "FORWARD": [(old, new)]}
    pairs["FULL"] = pairs["BACKWARD"] + pairs["FORWARD"]
    return not any(differences(reader, writer) for reader, writer in pairs[level])


def check_symmetry(one: ParsedSchema, other: ParsedSchema) -> None:
    backward = is_compatible("BACKWARD", one, other)
    forward = is_compatible("FORWARD", one, other)
    assert backward is is_compatible("FORWARD", other, one)
    assert forward is is_compatible("BACKWARD", other, one)
    assert is_compatible("FULL", one, other) is (backward and forward)


# -- Avro ---------------------------------------------------------------------

PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string"])
SYMBOLS = st.lists(st.sampled_from("ABC"), min_size=1, max_size=3, unique=True)


@st.composite
def avro_types(draw: st.DrawFn, depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["primitive", "record", "enum", "array", "union"]))
    if depth == 0 or kind == "primitive":
        return draw(PRIMITIVES)
    name = f"{kind[0].upper()}{depth}"
    if kind == "array":
        return {"type": "array", "items": draw(avro_types(depth - 1))}
    if kind == "enum":
        enum: dict[str, Any] = {"type": "enum", "name": name, "symbols": draw(SYMBOLS)}
        if draw(st.booleans()):
            enum["default"] = enum["symbols"][0]
        return enum
    if kind == "union":
        return draw(st.lists(PRIMITIVES, min_size=1, max_size=3, unique=True))
    fields = []
    for field in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        type_ = draw(avro_types(0 if fields else depth - 1))
        entry = {"name": field, "type": type_}
        if type_ == "int" and draw(st.booleans()):
            entry["default"] = 7
        if type_ == "string" and draw(st.booleans()):
            entry["default"] = "x"
        fields.append(entry)
    return {"type": "record", "name": name, "fields": fields}


def avro_value(type_: Any, chance: random.Random) -> Any:
    if isinstance(type_, list):
        return avro_value(chance.choice(type_), chance)
    kind = type_ if isinstance(type_, str) else type_["type"]
    match kind:
        case "record":
            return {f["name"]: avro_value(f["type"], chance) for f in type_["fields"]}
        case "enum":
            return chance.choice(type_["symbols"])
        case "array":
            return [avro_value(type_["items"], chance) for _ in range(chance.randrange(3))]
    values = {
        "null": None,
        "boolean": chance.random() < 0.5,
        "int": chance.randrange(-(2**31), 2**31),
        "long": chance.randrange(-(2**40), 2**40),
        "float": 0.5,
        "double": 0.25,
        "string": chance.choice(["", "a", "ü"]),
    }
    return values[kind]


@PROFILE
@given(avro_types(), avro_types(), st.integers(0, 2**32))
def test_avro_data_of_a_compatible_writer_is_read(old: Any, new: Any, seed: int) -> None:
    writer, reader = (parse(SchemaType.AVRO, json.dumps(value)) for value in (old, new))
    check_symmetry(reader, writer)
    if not is_compatible("BACKWARD", reader, writer):
        return
    chance = random.Random(seed)
    for _ in range(5):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(old), avro_value(old, chance))
        data.seek(0)
        fastavro.schemaless_reader(data, fastavro.parse_schema(old), fastavro.parse_schema(new))


# -- JSON Schema --------------------------------------------------------------

LEAVES: list[Any] = [
    {"type": "string"},
    {"type": "string", "maxLength": 2},
    {"type": "string", "minLength": 1},
    {"type": "integer"},
    {"type": "integer", "minimum": 1},
    {"type": "number", "maximum": 3},
    {"type": "number"},
    {"type": ["string", "null"]},
    {"enum": ["a", 1]},
    {"enum": ["a", 1, None]},
    {"const": 1},
    {"type": "boolean"},
    {},
]


@st.composite
def json_schemas(draw: st.DrawFn, depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["leaf", "object", "array", "oneOf", "not"]))
    if depth == 0 or kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "array":
        return {"type": "array", "items": draw(json_schemas(depth - 1))}
    if kind == "not":
        return {"not": draw(st.sampled_from(LEAVES))}
    if kind == "oneOf":
        return {"anyOf": draw(st.lists(st.sampled_from(LEAVES[:7]), min_size=1, max_size=3))}
    names = draw(st.lists(st.sampled_from("ab"), max_size=2, unique=True))
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {name: draw(json_schemas(depth - 1)) for name in names}
    schema["required"] = [name for name in names if draw(st.booleans())]
    match draw(st.sampled_from(["open", "closed", "typed"])):
        case "closed":
            schema["additionalProperties"] = False
        case "typed":
            schema["additionalProperties"] = draw(st.sampled_from(LEAVES))
    return schema


JSON_LEAVES = [None, True, 0, 1, 2, 5, 0.5, 4.5, "", "a", "abc"]
JSON_VALUES: list[Any] = [
    *JSON_LEAVES,
    [],
    {},
    *([value] for value in JSON_LEAVES),
    *({"a": value} for value in JSON_LEAVES),
    *({"b": value} for value in JSON_LEAVES),
    *({"a": one, "b": other} for one in JSON_LEAVES for other in JSON_LEAVES),
    {"a": {"a": 1}},
    {"a": {"a": "x", "b": 1}},
    {"c": 1},
    {"a": ["x"], "c": None},
]


@PROFILE
@given(json_schemas(), json_schemas())
def test_json_data_of_a_compatible_writer_is_valid(old: Any, new: Any) -> None:
    writer, reader = (
        parse(SchemaType.JSON, json.dumps(value), validate=True) for value in (old, new)
    )
    check_symmetry(reader, writer)
    if not is_compatible("BACKWARD", reader, writer):
        return
    old_validator = jsonschema.Draft7Validator(old)
    new_validator = jsonschema.Draft7Validator(new)
    for value in JSON_VALUES:
        if old_validator.is_valid(value):
            assert new_validator.is_valid(value), value


# -- Protobuf -----------------------------------------------------------------

SCALARS = ["int32", "int64", "uint32", "bool", "sint32", "string", "bytes", "fixed32", "float"]


@st.composite
def protos(draw: st.DrawFn) -> str:
    lines = []
    for number in draw(st.lists(st.integers(1, 4), max_size=4, unique=True)):
        type_ = draw(st.sampled_from([*SCALARS, "E", "N", "map<string, int32>"]))
        label = "" if "<" in type_ else draw(st.sampled_from(["", "", "repeated ", "optional "]))
        lines.append(f"{label}{type_} f{number} = {number};")
    inner = draw(st.sampled_from(["int32 x = 1;", "int64 x = 1;", "string x = 1;", ""]))
    return (
        f'syntax = "proto3"; message M {{ {" ".join(lines)} }} message N {{ {inner} }}'
        " enum E { A = 0; B = 1; }"
    )


def message_class(schema: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    file = schema.descriptor()
    file.name = "m.proto"
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


def fill(message: Any, chance: random.Random) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None or chance.random() < 0.3:
            continue
        kind = field.cpp_type
        value: Any = chance.randrange(2)
        if kind == field.CPPTYPE_STRING:
            value = b"a" if field.type == field.TYPE_BYTES else "a"
        if kind == field.CPPTYPE_BOOL:
            value = bool(value)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def is_lost_label(one: Any, other: Any) -> bool:
    """Confluent's rules allow it, but readers skip packed numbers that they expect one by one."""
    return one.is_repeated is not other.is_repeated and one.cpp_type != one.CPPTYPE_STRING


def same_value(one: Any, other: Any) -> bool:
    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode()
        return int(value) if isinstance(value, bool) else value

    if hasattr(one, "append") or hasattr(other, "append"):
        # Old readers take the last one of repeated values.
        values = [list(v) if hasattr(v, "append") else [v] for v in (one, other)]
        return [plain(v) for v in values[0]][-1:] == [plain(v) for v in values[1]][-1:] or not all(
            values
        )
    return bool(plain(one) == plain(other))


@PROFILE
@given(protos(), protos(), st.integers(0, 2**32))
def test_protobuf_data_of_a_compatible_writer_is_read(old: str, new: str, seed: int) -> None:
    writer, reader = (parse(SchemaType.PROTOBUF, text, validate=True) for text in (old, new))
    check_symmetry(reader, writer)
    if not is_compatible("BACKWARD", reader, writer):
        return
    written = message_class(writer)()
    fill(written, random.Random(seed))
    received = message_class(reader)()
    received.ParseFromString(written.SerializeToString())
    fields = received.DESCRIPTOR.fields_by_number
    for field, value in written.ListFields():
        if field.number in fields and not is_lost_label(field, fields[field.number]):
            assert same_value(value, getattr(received, field.name)), field.name
