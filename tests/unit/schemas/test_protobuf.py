"""Protobuf schemas beyond compatibility: both forms of input, printing, linking, bounds."""

import base64
from typing import ClassVar

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from tests.unit.schemas.language_tests import LanguageTests

from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, SchemaType
from ottla.schemas.languages import differences, parse
from ottla.schemas.protobuf.builtin import _LIBRARY, _TEXTS

EVERYTHING = """
// A comment.
syntax = "proto2";
package com.acme;
import public "google/protobuf/descriptor.proto";
import "confluent/meta.proto";
option java_package = "com.acme"; option (file_note) = 'it\\'s "x"\\n';
message Order {
  reserved 90, 100 to 120, 1000 to max; reserved "gone", "lost";
  option deprecated = true;
  extensions 200 to 300, 400;
  required int64 id = 1 [jstype = JS_STRING, (confluent.field_meta) = { tags: ["PII", "X"],
      params: [{key: "a", value: "b"}] }];
  optional string name = 2 [default = "a \\"b\\"", json_name = "n"];
  optional double price = 3 [default = -1.5, deprecated = true];
  repeated Line lines = 4; map<string, Line> by_name = 5;
  oneof kind { Line line = 6; State state = 7; }
  optional group Extra = 8 { optional bytes data = 1 [default = "\\001"]; }
  message Line { optional int32 count = 1; extend Order { optional Line more = 200; } }
  enum State { option allow_alias = true; NEW = 0; FIRST = 0; DONE = 5 [(note) = -3]; reserved 6; }
}
extend google.protobuf.FileOptions { optional string file_note = 50000; }
extend google.protobuf.EnumValueOptions { optional sint32 note = 50001; }
service Orders { option deprecated = true;
  rpc Get (Order) returns (stream Order.Line) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Put (.com.acme.Order) returns (Order);
}
"""


class TestProtobuf(LanguageTests):
    schema_type = SchemaType.PROTOBUF
    sample = 'syntax = "proto3"; package a; message User { string name = 1; int32 age = 2; }'
    same_sample = sample.replace(" ", "\n\t").replace("{", "{ // comment\n /* another */ ")
    sample_canonical = (
        'syntax = "proto3";\npackage a;\n\n'
        "message User {\n  string name = 1;\n  int32 age = 2;\n}\n"
    )
    other_sample = 'syntax = "proto3"; package a; message User { int32 name = 1; }'
    samples: ClassVar[list[str]] = [
        sample,
        other_sample,
        EVERYTHING,
        'syntax = "proto3"; message A { optional int32 x = 1; repeated B b = 2; message B {} }',
        'edition = "2023"; message A { int32 x = 1; }',
        "message A { optional int32 x = 1; }",
        'syntax = "proto3"; import "google/type/money.proto";'
        " message A { google.type.Money m = 1; }",
        'syntax = "proto3"; import "confluent/type/decimal.proto"; enum E { Z = 0; }'
        " message A { confluent.type.Decimal d = 1; E e = 2; }",
    ]
    normalised_pair = (
        'syntax = "proto3"; message A { int32 x = 1; B y = 2; } message B {}',
        'syntax = "proto3"; message A { .B y = 2; int32 x = 1; } message B {}',
    )
    invalid: ClassVar[list[str]] = [
        "message",
        "message A {",
        "message A }",
        "hello",
        "{}",
        'syntax = "proto4";',
        'syntax = "proto3"; message A { int32 x = 0; }',
        'syntax = "proto3"; message A { int32 x = 536870912; }',
        'syntax = "proto3"; message A { int32 x = 19000; }',
        'syntax = "proto3"; message A { int32 x = 1; int32 y = 1; }',
        'syntax = "proto3"; message A { int32 x = 1; string x = 2; }',
        'syntax = "proto3"; message A { int32 x = 1 }',
        'syntax = "proto3"; message A { int32 = 1; }',
        'syntax = "proto3"; message A { Unknown x = 1; }',
        'syntax = "proto3"; message A {} message A {}',
        'syntax = "proto3"; message A { map<Unknown, int32> m = 1; }',
        'syntax = "proto3"; enum E { A = 1; }',
        'syntax = "proto3"; import "other.proto"; message A {}',
        'syntax = "proto3"; message A { string x = 1 [default = ',
        'syntax = "proto3"; option x = "\\q";',
        'syntax = "proto3"; option x = "unfinished',
        "/* unfinished",
        'syntax = "proto3"; message A { oneof o { repeated int32 x = 1; } }',
        'syntax = "proto3"; message A { reserved 1 to 5; int32 x = 3; }',
        'syntax = "proto3"; message A { reserved 1 to 5, 4; }',
        'syntax = "proto3"; message A { reserved "x"; int32 x = 3; }',
        'syntax = "proto3"; message A { required int32 x = 3; }',
        'syntax = "proto3"; message A { map<float, int32> x = 3; }',
        'syntax = "proto3"; message A {}\x00',
        "message A {" * 40 + "}" * 40,
        "option (x) = " + "{a: " * 50,
        base64.b64encode(
            descriptor_pb2.FileDescriptorProto(
                message_type=[descriptor_pb2.DescriptorProto(name="not a name")]
            ).SerializeToString()
        ).decode(),
    ]
    referring = 'syntax = "proto3"; import "user.proto"; message Order { a.User user = 1; }'
    references: ClassVar[dict[str, str]] = {"user.proto": sample}
    tagged_entity = SchemaEntity.of(".a.User.name", EntityKind.FIELD)


def proto(text: str, references: dict[str, str] | None = None):
    return parse(SchemaType.PROTOBUF, text, references, validate=True)


def test_everything_is_printed_in_the_layout_of_confluent() -> None:
    assert proto(EVERYTHING).canonical == (
        """syntax = "proto2";
package com.acme;

import "confluent/meta.proto";
import public "google/protobuf/descriptor.proto";

option java_package = "com.acme";
option (file_note) = "it\\'s \\"x\\"\\n";

message Order {
  reserved 90;
  reserved 100 to 120;
  reserved 1000 to max;
  reserved "gone";
  reserved "lost";

  option deprecated = true;

  required int64 id = 1 [
    jstype = JS_STRING,
    (confluent.field_meta) = {
      tags: [
        "PII",
        "X"
      ],
      params: [
        {
          key: "a",
          value: "b"
        }
      ]
    }
  ];
  optional string name = 2 [
    default = "a \\"b\\"",
    json_name = "n"
  ];
  optional double price = 3 [
    deprecated = true,
    default = -1.5
  ];
  repeated Line lines = 4;
  map<string, Line> by_name = 5;

  oneof kind {
    Line line = 6;
    State state = 7;
  }

  optional group Extra = 8 {
    optional bytes data = 1 [default = "\\001"];
  }

  extensions 200 to 300;
  extensions 400;

  message Line {
    optional int32 count = 1;
\x20\x20
    extend Order {
      optional Line more = 200;
    }
  }
  enum State {
    reserved 6;
    option allow_alias = true;
    NEW = 0;
    FIRST = 0;
    DONE = 5 [(note) = -3];
  }
}

extend google.protobuf.FileOptions {
  optional string file_note = 50000;
}
extend google.protobuf.EnumValueOptions {
  optional sint32 note = 50001;
}

service Orders {
  option deprecated = true;

  rpc Get (Order) returns (stream Order.Line) {
    option idempotency_level = NO_SIDE_EFFECTS;
  };
  rpc Put (.com.acme.Order) returns (Order);
}
"""
    )


@pytest.mark.parametrize("text", TestProtobuf.samples)
def test_serialized_format_is_read_back_as_the_same_schema(text: str) -> None:
    schema = proto(text)
    serialized = proto(schema.formatted("serialized"))
    assert serialized.normalised().canonical == schema.normalised().canonical
    assert serialized.tags == schema.tags
    assert differences(serialized, schema) == differences(schema, serialized) == []


def test_serialized_format_with_references_is_accepted_by_protobuf() -> None:
    schema = proto(TestProtobuf.referring, TestProtobuf.references)
    pool = descriptor_pool.DescriptorPool()
    user = proto(TestProtobuf.sample)
    for name, parsed in (("user.proto", user), ("order.proto", schema)):
        file = descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(parsed.formatted("serialized"))
        )
        file.name = name
        pool.Add(file)
    assert pool.FindMessageTypeByName("Order").fields_by_name["user"].message_type.full_name == (
        "a.User"
    )


def test_custom_options_are_encoded_in_the_serialized_format() -> None:
    data = base64.b64decode(proto(EVERYTHING).formatted("serialized"))
    file = descriptor_pb2.FileDescriptorProto.FromString(data)
    assert file.options.java_package == "com.acme"
    assert b"it's" in file.options.SerializeToString()
    assert not file.options.uninterpreted_option


def test_generated_classes_of_protobuf_are_accepted_as_base64() -> None:
    for name in _LIBRARY:
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        text = base64.b64encode(module.DESCRIPTOR.serialized_pb).decode()
        schema = proto(text)
        assert schema.text == text
        assert f"package {module.DESCRIPTOR.package};" in schema.canonical


def test_built_in_files_need_no_reference() -> None:
    for name in _TEXTS:
        assert proto(f'syntax = "proto3"; import "{name}"; message A {{}}')


def test_options_of_one_message_are_joined_when_normalised() -> None:
    head = 'syntax = "proto3"; import "confluent/meta.proto"; message A { int32 x = 1 ['
    texts = [
        '(confluent.field_meta).tags = "T", (confluent.field_meta).doc = "d"',
        '(confluent.field_meta) = { doc: "d", tags: ["T"] }',
        '(confluent.field_meta) = { tags: "T" }, (.confluent.field_meta).doc = "d"',
    ]
    schemas = [proto(f"{head}{text}]; }}") for text in texts]
    assert len({schema.normalised().canonical for schema in schemas}) == 1
    serialized = proto(schemas[0].formatted("serialized"))
    assert serialized.normalised().canonical == schemas[0].normalised().canonical


def test_a_list_of_option_values_is_several_options() -> None:
    text = 'syntax = "proto3"; option (x).y = ["a", "b"];'
    schema = parse(SchemaType.PROTOBUF, text)
    assert schema.canonical.count("option (x).y = ") == 2


def test_ignore_extensions_leaves_extensions_out() -> None:
    text = proto(EVERYTHING).formatted("ignore_extensions")
    assert "extend" not in text
    assert "extensions" not in text


def test_references_of_references_are_followed() -> None:
    references: ClassVar[dict[str, str]] = {
        "c.proto": 'syntax = "proto3"; message C { int32 x = 1; }',
        "b.proto": 'syntax = "proto3"; import "c.proto"; message B { C c = 1; }',
    }
    text = 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }'
    schema = proto(text, references)
    changed = proto(
        text, {**references, "c.proto": 'syntax = "proto3"; message C { string x = 1; }'}
    )
    rules = {difference.rule for difference in differences(changed, schema)}
    assert rules == {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}


def test_files_that_import_each_other_are_rejected() -> None:
    references: ClassVar[dict[str, str]] = {
        "b.proto": 'import "c.proto";',
        "c.proto": 'import "b.proto";',
    }
    with pytest.raises(InvalidSchema, match="imports itself"):
        proto('import "b.proto";', references)


def test_errors_name_line_and_column() -> None:
    with pytest.raises(InvalidSchema, match="line 2, column 11"):
        proto('syntax = "proto3";\nmessage A % {}')
