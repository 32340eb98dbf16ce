"""``ottla profile``: named client settings, for ``--profile`` of every other command."""

from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.connecting.connection_settings import BOOTSTRAP, options_of, read_properties
from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.profiles import (
    BadProfiles,
    Profiles,
    absolute_paths,
    profiles_path,
    read_profiles,
    write_profiles,
)
from ottla.cli.options import OutputOption, answer, say
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.rendering import Row
from ottla.cli.terminal.suggestions import did_you_mean
from ottla.client.client_security import PROTOCOL, is_secret

app = typer.Typer(
    help="Manage named client settings.",
    no_args_is_help=True,
    add_completion=False,
)

NameArgument = Annotated[str, typer.Argument(help="Name of the profile.")]


_KNOWN: Final = (BOOTSTRAP, PROTOCOL, "client.id")


@app.command("list")
def list_profiles(context: typer.Context, *, output: OutputOption = None) -> None:
    """List profiles, and where each one connects."""
    rows: list[Row] = [
        {
            "profile": name,
            "bootstrap": settings.get(BOOTSTRAP),
            "protocol": settings.get(PROTOCOL, "PLAINTEXT"),
        }
        for name, settings in sorted(_read().items())
    ]
    answer(context, output, rows, empty="no profiles; create one with `ottla profile set NAME`")


@app.command("show")
def show(context: typer.Context, name: NameArgument, *, output: OutputOption = None) -> None:
    """Show the settings of a profile; secrets are hidden."""
    answer(context, output, _rows(_existing(name)))


@app.command("set")
def change(
    context: typer.Context,
    name: NameArgument,
    settings: Annotated[list[str] | None, typer.Argument(help="key=value ...")] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Import a file of Kafka client properties."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", "-d", help="Remove a setting: key.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Create or change a profile. Use --file for passwords."""
    profiles = _read()
    changed = dict(profiles.get(name, {}))
    if file is not None:
        changed |= read_properties(str(file), "--file")
    changed |= parse_pairs(settings, "SETTINGS")
    changed = absolute_paths(changed, Path.cwd())
    for key in delete or ():
        if changed.pop(key, None) is None:
            fail(f"profile {name}: {key} is not set")
    if not changed:
        raise typer.BadParameter("give key=value, or --file")
    options_of(changed)
    profiles[name] = changed
    _write(profiles)
    answer(context, output, _rows(changed))
    for key in changed:
        if key not in _KNOWN and (hint := did_you_mean(key, _KNOWN)):
            say(f"warning: {key} is kept, but no command uses it{hint}")


@app.command("remove")
def remove(context: typer.Context, name: NameArgument, *, output: OutputOption = None) -> None:
    """Remove a profile."""
    _existing(name)
    _write({each: settings for each, settings in _read().items() if each != name})
    answer(context, output, [{"removed": name}])


def _rows(settings: dict[str, str]) -> list[Row]:
    return [
        {"key": key, "value": "(hidden)" if is_secret(key) else value}
        for key, value in sorted(settings.items())
    ]


def _existing(name: str) -> dict[str, str]:
    profiles = _read()
    if name not in profiles:
        hint = did_you_mean(name, profiles)
        fail(f"there is no profile {name!r} in {profiles_path()}{hint}")
    return profiles[name]


def _read() -> Profiles:
    try:
        return read_profiles()
    except BadProfiles as error:
        fail(str(error))


def _write(profiles: Profiles) -> None:
    try:
        write_profiles(profiles)
    except OSError as error:
        fail(f"{profiles_path()}: {error.strerror}")
