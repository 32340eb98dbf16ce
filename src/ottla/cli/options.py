"""Options that commands share, and functions to print answers."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Answer, Row, render
from ottla.operations.escaping import escape

BOOTSTRAP_DEFAULT: Final = ""
"""Not given: use the client settings, see `ottla.cli.connecting.connection_settings`."""

OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", metavar="FORMAT", help="Output format: table, json or yaml."),
]
INSTALL: Final = "`pip install 'ottla[sql]'`, or `make sql` in a checkout"
"""How to install what `ottla sql` and the formats of records need."""

RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        envvar="OTTLA_REGISTRY",
        metavar="URL",
        help="Schema registry that speaks Confluent's API, or auto: the one that the brokers "
        "publish. Its login: -X with Confluent's client settings.",
    ),
]
BytesOption = Annotated[
    bool, typer.Option("--bytes", help="Print sizes in a table as exact numbers of bytes.")
]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        show_default="bootstrap.servers of the client settings, or localhost:9092",
        help="Brokers to connect to: host[:port],...; the default port is 9092.",
    ),
]


@dataclass(frozen=True, slots=True)
class Common:
    """Options given before the command's name."""

    output: Output | None = None


def chosen(context: typer.Context, output: Output | None) -> Output:
    """Return the output format given after the command, else before it, else a table."""
    common = context.find_object(Common)
    return output or (common.output if common else None) or Output.TABLE


def answer(
    context: typer.Context, output: Output | None, found: Answer, *, empty: str = ""
) -> None:
    """Print an answer on stdout, in the requested format.

    In place of a table without rows, ``empty`` is said on stderr.
    """
    how = chosen(context, output)
    sys.stdout.write(render(found, how, terminal_width()))
    if empty and not found and how is Output.TABLE:
        say(empty)


def terminal_width() -> int | None:
    """Return how many columns stdout has; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def answer_each(context: typer.Context, output: Output | None, found: Sequence[Row]) -> None:
    """Print several documents: one after the other for people, as one list for programs."""
    if chosen(context, output) is not Output.TABLE:
        answer(context, output, found)
        return
    for number, each in enumerate(found):
        if number:
            typer.echo()
        answer(context, output, each)


def say(message: str) -> None:
    """Print a message, which is not part of the answer, on stderr."""
    typer.echo(escape(message, keep="\n\t"), err=True)
