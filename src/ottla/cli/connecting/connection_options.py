"""Connection options, added to every command that has ``--bootstrap``."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace

from ottla.cli.connecting.connection_settings import given_now, remember
from ottla.cli.connecting.pairs import parse_pairs

PANEL: Final = "Connection"


# Options that users of other tools give before the command; each takes a value.
_EARLY: Final = ("-b", "--bootstrap", "-X", "--property", "--command-config", "--profile")


def moved_after_command(arguments: Sequence[str]) -> list[str]:
    """Return a command line whose connection options, if given before the command, follow it.

    ``ottla -b host topic list`` is ``ottla topic list -b host``.
    """
    early: list[str] = []
    kept: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, has_value, _ = word.partition("=")
        into = early if name in _EARLY else kept
        into.append(word)
        if name in (*_EARLY, "-o", "--output") and not has_value and rest:
            into.append(rest.pop(0))
    if not early or not rest:
        return list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    return [*kept, *rest[:end], *early, *rest[end:]]


def add_connection_options(command: Any) -> None:  # noqa: ANN401 - typer brings its own click
    """Add the options to a command, or to every command of a group."""
    for inner in getattr(command, "commands", {}).values():
        add_connection_options(inner)
    if any(param.name == "bootstrap" for param in command.params):
        command.params += _options()


def _options() -> list[Any]:
    """Return new options; they reach the command through `remember`, not as arguments."""
    found = [param for param in typer.main.get_command(_template).params if param.name != "help"]
    for param in found:
        param.expose_value = False
    return found


# Callbacks run for every command line, even if an option is not given, so that nothing is kept
# from an earlier command in the same process.


def _take_file(value: str | None) -> None:
    remember(replace(given_now(), command_config=value))


def _take_settings(value: list[str] | None) -> None:
    remember(replace(given_now(), settings=parse_pairs(value, "-X")))


def _take_profile(context: typer.Context, value: str | None) -> None:
    command = context.command_path.partition(" ")[2]
    remember(replace(given_now(), profile=value, command=command, parameters=context.params))


_template = typer.Typer(add_completion=False)


@_template.command()
def _declare(
    *,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            envvar="OTTLA_COMMAND_CONFIG",
            metavar="FILE",
            callback=_take_file,
            help="File of Kafka client properties, as for kafka-topics.sh.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-X",
            "--property",
            metavar="KEY=VALUE",
            callback=_take_settings,
            help="Kafka client property as key=value; may be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar="OTTLA_PROFILE",
            metavar="NAME",
            callback=_take_profile,
            help="Profile with client properties, see `ottla profile set`.",
            rich_help_panel=PANEL,
        ),
    ] = None,
) -> None:
    """Declare the options; this command is never run."""
