"""``ottla sql``: query topics with DuckDB."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.commands.light_arrow import import_light_arrow
from ottla.cli.options import BOOTSTRAP_DEFAULT, INSTALL, BootstrapOption, RegistryOption
from ottla.cli.terminal.failures import fail

app = typer.Typer(add_completion=False)

_PER_TOPIC: Final = " For one topic: TOPIC=..., may be repeated."

Many = list[str] | None
QueryArgument = Annotated[
    str, typer.Argument(help="A query of DuckDB over topics as tables; - reads it from stdin.")
]
FormatOption = Annotated[
    Many,
    typer.Option(
        "--format",
        "-f",
        help="Format of values: auto (from a sample), raw, text, json, avro or protobuf."
        + _PER_TOPIC,
    ),
]
KeyFormatOption = Annotated[Many, typer.Option("--key-format", help="Format of keys, likewise.")]
SchemaOption = Annotated[
    Many,
    typer.Option(
        "--schema", help="Columns of JSON values: 'id bigint, amount double'." + _PER_TOPIC
    ),
]
SchemaFileOption = Annotated[
    Many,
    typer.Option("--schema-file", help="Avro schema, or descriptor set of Protobuf." + _PER_TOPIC),
]
KeySchemaFileOption = Annotated[
    Many, typer.Option("--key-schema-file", help="Schema of keys, as --schema-file.")
]
MessageOption = Annotated[
    Many, typer.Option("--message", help="Name of the Protobuf message." + _PER_TOPIC)
]
KeyMessageOption = Annotated[
    Many, typer.Option("--key-message", help="Name of the Protobuf message of keys.")
]
BadValuesOption = Annotated[
    str,
    typer.Option(
        "--bad-values",
        help="fail, or null: what to do with a key or value that does not fit its format.",
    ),
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        help="First record: beginning, N, -N (before the end), @milliseconds, "
        "2026-01-31T12:00, or 10m (ago).",
    ),
]
ToOption = Annotated[
    str, typer.Option("--to", help="End, in the same forms; that record is not included.")
]
UncommittedOption = Annotated[
    bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
]
LateOption = Annotated[
    str | None,
    typer.Option(
        "--late",
        metavar="DURATION",
        help="Records are at most this late by their timestamps: timestamp < T in WHERE then "
        "ends the scan early.",
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on with new records, until Ctrl-C.")
]
IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.05, help="Seconds between results of --follow.")
]
FileOption = Annotated[Path | None, typer.Option("--file", help="Write the result to this file.")]
MemoryOption = Annotated[
    str, typer.Option("--memory", help="Most memory of DuckDB, which spills to disk then.")
]
StatsOption = Annotated[bool, typer.Option("--stats", help="Print what was fetched, on stderr.")]
SqlOutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Output format: table, json, yaml, csv or parquet."),
]


@app.command("sql")
def sql(  # noqa: PLR0913 - one per option
    context: typer.Context,
    query: QueryArgument,
    *,
    value_format: FormatOption = None,
    key_format: KeyFormatOption = None,
    schema: SchemaOption = None,
    schema_file: SchemaFileOption = None,
    key_schema_file: KeySchemaFileOption = None,
    message: MessageOption = None,
    key_message: KeyMessageOption = None,
    registry: RegistryOption = None,
    bad_values: BadValuesOption = "fail",
    start: FromOption = "beginning",
    end: ToOption = "end",
    uncommitted: UncommittedOption = False,
    late: LateOption = None,
    follow: FollowOption = False,
    interval: IntervalOption = 1.0,
    file: FileOption = None,
    memory: MemoryOption = "1GB",
    stats: StatsOption = False,
    output: SqlOutputOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Query topics with SQL, without Spark."""
    try:
        import_light_arrow()
        from ottla.cli.commands import sql_options as parse
        from ottla.cli.commands.sql_running import Running, run_query
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        fail(f"`ottla sql` needs the module {error.name}, which is not installed: {INSTALL}")
    client = parse.client_settings(bootstrap)
    formats = parse.topic_formats(
        parse.part_options(key_format, None, key_schema_file, key_message, "key-"),
        parse.part_options(value_format, schema, schema_file, message, ""),
        bad_values,
        registry,
        client,
    )
    options = parse.sql_options(formats, (start, end), late, memory, is_committed=not uncommitted)
    running = Running(
        query=sys.stdin.read() if query == "-" else query,
        output=parse.chosen_output(context, output, file, is_following=follow),
        file=file,
        interval_s=interval if follow else None,
        is_counted=stats,
    )
    sys.exit(run_query(client, options, running))
