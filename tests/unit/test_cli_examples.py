"""The examples of the help pages: every command has some, and each one is a valid command line."""

import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from ottla.cli.app import COMMANDS, app
from ottla.cli.commands.server_arguments import parse_arguments
from ottla.cli.examples import EXAMPLES

ROOT = typer.main.get_command(app)
CONTEXT = typer.Context(ROOT)
DIRECTORY = "ottla-data/node-1/orders-0"
FILES = (
    "records.jsonl",
    "server.properties",
    "client.properties",
    "secret",
    "orders.toml",
    "order.avsc",
)
LINES = [(path, line) for path, lines in EXAMPLES.items() for line in lines]


def leaves(path: str, command: typer.core.TyperCommand) -> list[str]:
    """Return a command, or the commands of a group."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        return [path]
    own = [path] if command.invoke_without_command else []
    return own + [
        leaf
        for name, subcommand in subcommands.items()
        for leaf in leaves(f"{path} {name}", subcommand)
    ]


def test_every_command_has_one_or_two_examples() -> None:
    names = [leaf for name in COMMANDS for leaf in leaves(name, ROOT.get_command(CONTEXT, name))]
    assert set(EXAMPLES) == set(names)
    assert {len(lines) for lines in EXAMPLES.values()} == {1, 2}


def arguments_of(line: str) -> list[str]:
    """Return the words after `ottla`; what is piped into it is left out."""
    words = shlex.split(line.rpartition(" | ")[2])
    assert words[0] == "ottla"
    return words[1:]


@pytest.mark.parametrize(("path", "line"), LINES, ids=[line for _, line in LINES])
def test_example_is_a_valid_command_line_of_its_command(
    path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FILES:
        (tmp_path / name).write_text("")
    (tmp_path / DIRECTORY).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    words = arguments_of(line)
    assert words[: len(path.split())] == path.split()
    if path == "server":
        parse_arguments(words[1:])
        return
    command, rest = ROOT.get_command(CONTEXT, words[0]), words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(path, rest)


def test_help_shows_the_examples() -> None:
    done = CliRunner().invoke(app, ["topic", "create", "--help"], env={"COLUMNS": "80"})
    for line in EXAMPLES["topic create"]:
        assert f"$ {line}" in done.output


def test_commands_are_shown_in_panels() -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"})
    for panel in ("Start", "Data", "Groups and transactions", "Security", "Operate", "Move"):
        assert f"╭─ {panel} " in done.output
