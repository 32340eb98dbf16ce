"""The two calls of the registry: parse a schema of any language, and compare two schemas.

The packages of the languages are imported on first use: JSON Schema and Protobuf need the extra
``registry``, and a node that serves no schemas loads neither.
"""

from collections.abc import Mapping
from typing import assert_never

from ottla.schemas.bounds import check_sizes
from ottla.schemas.contract import Difference, ParsedSchema, SchemaType


def parse(
    schema_type: SchemaType,
    text: str,
    references: Mapping[str, str] | None = None,
    *,
    validate: bool = False,
) -> ParsedSchema:
    """Parse ``text``; ``references`` are the texts of the referenced schemas in dependency order.

    With ``validate``, rules that only new schemas must keep are checked, too (names and default
    values of Avro, the meta-schema of JSON Schema). Without it, stored schemas can be read that an
    older registry accepted.

    Raises:
        InvalidSchema: the text or a reference is no schema, or is beyond the bounds.
    """
    references = dict(references or {})
    check_sizes(text, references)
    match schema_type:
        case SchemaType.AVRO:
            from ottla.schemas.avro.schema import parse_avro

            return parse_avro(text, references, validate=validate)
        case SchemaType.JSON:
            from ottla.schemas.json_schema.schema import parse_json_schema

            return parse_json_schema(text, references, validate=validate)
        case SchemaType.PROTOBUF:
            from ottla.schemas.protobuf.schema import parse_protobuf

            return parse_protobuf(text, references, validate=validate)
        case _:
            assert_never(schema_type)


def differences(
    reader: ParsedSchema, writer: ParsedSchema, *, policy: str = "STRICT"
) -> list[Difference]:
    """Return why data written with ``writer`` cannot be read with ``reader``; empty if it can.

    BACKWARD passes the new schema as reader, FORWARD the old one. ``policy`` is ``STRICT`` or
    ``LENIENT`` and only concerns JSON Schema.

    Raises:
        InvalidSchema: the schemas are too large to compare, or one that was parsed without
            ``validate`` refers to something that is missing.
    """
    if reader.schema_type is not writer.schema_type:
        text = "Incompatible because of different schema type"
        return [Difference("SCHEMA_TYPE_CHANGED", "", text, (text,))]
    match reader.schema_type:
        case SchemaType.AVRO:
            from ottla.schemas.avro.schema import compare_avro

            return compare_avro(reader, writer)
        case SchemaType.JSON:
            from ottla.schemas.json_schema.schema import compare_json_schemas

            return compare_json_schemas(reader, writer, policy=policy)
        case SchemaType.PROTOBUF:
            from ottla.schemas.protobuf.schema import compare_protobuf

            return compare_protobuf(reader, writer)
        case _:
            assert_never(reader.schema_type)
