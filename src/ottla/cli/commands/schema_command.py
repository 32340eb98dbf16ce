"""``ottla schema``: subjects, versions and settings of a schema registry."""

import difflib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Protocol
from urllib.parse import quote

import typer

from ottla.cli.commands.registry_option import require_registry
from ottla.cli.commands.schema_reasons import reasons_of, split_details
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    chosen,
)
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row
from ottla.cli.terminal.text_files import UnreadableFile, read_text
from ottla.formats.record_values import BadFormatOption
from ottla.formats.registry_client import Registry, RegistryFailed, UnknownSchema

TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

app = typer.Typer(
    help="Show, register, compare and delete schemas of a registry.",
    no_args_is_help=True,
    add_completion=False,
)

Subject = Annotated[str, typer.Argument(help="The subject, such as orders-value.")]
Version = Annotated[str, typer.Argument(help="A version, or latest.")]
File = Annotated[Path, typer.Argument(help="The file with the schema.", exists=True)]
Url = Annotated[
    str | None,
    typer.Option(
        "--registry",
        envvar="OTTLA_REGISTRY",
        metavar="URL",
        help="The registry; else schema.registry.url of -X or a profile, else that of the cluster.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--type", help="AVRO, JSON or PROTOBUF; else by the file's name (.avsc, .json, .proto)."
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses under a name; may be repeated.",
    ),
]
Permanent = Annotated[
    bool, typer.Option("--permanent", help="Remove for good what was deleted before.")
]


class _Asked(Protocol):
    """Sends requests of one command to its registry."""

    def __call__(self, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Return the reply; end the command with the registry's message if it is rejected."""
        ...


def _asker(url: str | None, bootstrap: str | None) -> _Asked:
    """Find the registry of a command, and return what sends requests to it."""
    try:
        registry = Registry(require_registry(url, bootstrap))
    except BadFormatOption as error:
        fail(str(error))

    def ask(method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
        try:
            return registry.ask(method, path, body)
        except UnknownSchema as error:
            fail(f"schema registry {registry.urls[0]}: {error}")
        except RegistryFailed as error:
            fail(_readable(str(error)))

    return ask


def _readable(message: str) -> str:
    """Return a rejection with one line for each reason."""
    head, found, details = message.partition(", details: [")
    if not found:
        return message
    return "\n".join([head, *(f"  {line}" for line in reasons_of(split_details(details[:-1])))])


def _path(*parts: str) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _body(file: Path, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    schema_type = (kind or TYPES.get(file.suffix.lower()) or "AVRO").upper()
    if schema_type not in TYPES.values():
        fail(f"--type {kind}: must be AVRO, JSON or PROTOBUF")
    try:
        body: dict[str, Any] = {"schema": read_text(file), "schemaType": schema_type}
        return {**body, "references": [_reference(text) for text in references or ()]}
    except UnreadableFile as error:
        fail(str(error))


def _reference(text: str) -> dict[str, str | int]:
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not (name and equals and subject and colon and version.isdecimal()):
        raise typer.BadParameter(f"{text!r} must be NAME=SUBJECT:VERSION", param_hint="--reference")
    return {"name": name, "subject": subject, "version": int(version)}


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    prefix: Annotated[str, typer.Option("--prefix", help="Only subjects that begin so.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted versions, too.")] = False,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List the newest version of every subject."""
    shows_deleted = "true" if deleted else "false"
    query = f"?latestOnly=true&deleted={shows_deleted}&subjectPrefix={quote(prefix or ':*:')}"
    rows: list[Row] = [
        {
            "subject": schema["subject"],
            "version": schema["version"],
            "id": schema["id"],
            "type": schema.get("schemaType", "AVRO"),
        }
        for schema in _asker(registry, bootstrap)("GET", f"/schemas{query}")
    ]
    answer(context, output, rows, empty="no subjects")


@app.command("get")
def get(
    context: typer.Context,
    subject: Subject,
    version: Version = "latest",
    *,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Print the schema of a version; with another output format all that is known of it."""
    schema = _asker(registry, bootstrap)("GET", _path("subjects", subject, "versions", version))
    if chosen(context, output) is Output.TABLE:
        sys.stdout.write(_text(schema))
    else:
        answer(context, output, schema)


def _text(schema: dict[str, Any]) -> str:
    """Return a schema for people: JSON is indented."""
    text = str(schema["schema"])
    if schema.get("schemaType", "AVRO") != "PROTOBUF":
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text.rstrip("\n") + "\n"


@app.command("diff")
def diff(
    context: typer.Context,
    subject: Subject,
    old: Annotated[str, typer.Argument(help="The older version.")],
    new: Version = "latest",
    *,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Print what changed between two versions; exit 1 if they differ."""
    ask = _asker(registry, bootstrap)
    versions = [ask("GET", _path("subjects", subject, "versions", number)) for number in (old, new)]
    names = [f"{subject} version {schema['version']}" for schema in versions]
    texts = [_text(schema).splitlines(keepends=True) for schema in versions]
    lines = list(difflib.unified_diff(texts[0], texts[1], names[0], names[1]))
    if chosen(context, output) is Output.TABLE:
        sys.stdout.writelines(lines)
    else:
        row: Row = {"subject": subject, "old": versions[0]["version"]}
        answer(context, output, {**row, "new": versions[1]["version"], "diff": "".join(lines)})
    if lines:
        raise typer.Exit(1)


@app.command("register")
def register(  # noqa: PLR0913 - one per option
    context: typer.Context,
    subject: Subject,
    file: File,
    *,
    kind: Kind = None,
    reference: References = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Order what has no order before it is compared.")
    ] = False,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Register the schema of a file, and show its id and version."""
    query = "?normalize=true" if normalize else ""
    path = _path("subjects", subject, "versions") + query
    body = _body(file, kind, reference)  # first: a bad file needs no registry
    reply = _asker(registry, bootstrap)("POST", path, body)
    answer(context, output, {"subject": subject, "version": reply["version"], "id": reply["id"]})


@app.command("check")
def check(
    context: typer.Context,
    subject: Subject,
    file: File,
    *,
    kind: Kind = None,
    reference: References = None,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Say whether the schema of a file could be registered; exit 1 if not."""
    path = _path("compatibility", "subjects", subject, "versions") + "?verbose=true"
    body = _body(file, kind, reference)
    reply = _asker(registry, bootstrap)("POST", path, body)
    messages = reply.get("messages") or []
    row: Row = {"subject": subject, "compatible": bool(reply["is_compatible"])}
    if chosen(context, output) is Output.TABLE:
        answer(context, output, row)
        for line in reasons_of(messages):
            typer.echo(line)
    else:
        answer(context, output, {**row, "reasons": messages} if messages else row)
    if not reply["is_compatible"]:
        raise typer.Exit(1)


@app.command("compat")
def compat(
    context: typer.Context,
    subject: Annotated[str, typer.Argument(help="The subject; all without one.")] = "",
    level: Annotated[str, typer.Argument(help="The level to set; shows it without one.")] = "",
    *,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show or set the compatibility level of a subject, or of the registry."""
    path = _path("config", *([subject] if subject else []))
    if level:
        reply = _asker(registry, bootstrap)("PUT", path, {"compatibility": level.upper()})
        shown = reply["compatibility"]
    else:
        shown = _asker(registry, bootstrap)("GET", f"{path}?defaultToGlobal=true")[
            "compatibilityLevel"
        ]
    answer(context, output, {"subject": subject or "*", "compatibility": shown})


@app.command("mode")
def mode(
    context: typer.Context,
    subject: Annotated[str, typer.Argument(help="The subject; all without one.")] = "",
    new: Annotated[str, typer.Argument(help="The mode to set; shows it without one.")] = "",
    *,
    force: Annotated[bool, typer.Option("--force", help="IMPORT beside existing schemas.")] = False,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show or set the mode of a subject, or of the registry."""
    path = _path("mode", *([subject] if subject else []))
    if new:
        query = "?force=true" if force else ""
        reply = _asker(registry, bootstrap)("PUT", path + query, {"mode": new.upper()})
    else:
        reply = _asker(registry, bootstrap)("GET", f"{path}?defaultToGlobal=true")
    answer(context, output, {"subject": subject or "*", "mode": reply["mode"]})


@app.command("delete")
def delete(
    context: typer.Context,
    subject: Subject,
    version: Annotated[str, typer.Argument(help="One version; all without one.")] = "",
    *,
    permanent: Permanent = False,
    registry: Url = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete a version or a subject: softly, or with --permanent for good."""
    path = _path("subjects", subject, *(["versions", version] if version else []))
    reply = _asker(registry, bootstrap)("DELETE", path + ("?permanent=true" if permanent else ""))
    deleted = reply if isinstance(reply, list) else [reply]
    answer(context, output, {"subject": subject, "deleted": deleted, "permanent": permanent})
