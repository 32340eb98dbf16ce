"""Options about the formats of records, which `consume` and `produce` share."""

from typing import Annotated

import typer

ValueFormatOption = Annotated[
    str,
    typer.Option(
        "--value-format",
        help="raw, or avro, protobuf, json: values are JSON here, and in this format in the topic.",
    ),
]
KeyFormatOption = Annotated[
    str, typer.Option("--key-format", help="Format of keys, as --value-format.")
]
SchemaFileOption = Annotated[
    str | None,
    typer.Option("--schema-file", help="Avro schema, JSON Schema, or descriptors of Protobuf."),
]
KeySchemaFileOption = Annotated[
    str | None, typer.Option("--key-schema-file", help="Schema of keys, as --schema-file.")
]
MessageOption = Annotated[
    str | None, typer.Option("--message", help="Name of the Protobuf message.")
]
StrategyOption = Annotated[
    str,
    typer.Option(
        "--subject-strategy",
        help="Subject of the schema in the registry: topic, record or topic-record.",
    ),
]
SchemaIdOption = Annotated[
    str,
    typer.Option(
        "--schema-id",
        help="Where records name their schema: prefix (its id before the value) or header (its "
        "guid).",
    ),
]
