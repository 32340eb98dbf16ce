"""The command line as a whole: what every command has, what it costs to start, how it fails."""

import ast
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from ottla.cli.app import COMMANDS, app

pytestmark = pytest.mark.slow

ROOT = typer.main.get_command(app)


def commands() -> dict[str, typer.core.TyperCommand]:
    """Every command, by what one types."""
    found = {}
    context = typer.Context(ROOT)
    for name in COMMANDS:
        found.update(within(name, ROOT.get_command(context, name)))
    return found


def within(name: str, command: typer.core.TyperCommand) -> dict[str, typer.core.TyperCommand]:
    """A command, or all commands of a group, also of the groups in it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name: command}
    found = {name: command} if command.invoke_without_command else {}
    for own, each in inner.items():
        found.update(within(f"{name} {own}", each))
    return found


def test_the_table_is_complete() -> None:
    modules = {each.stem for each in Path("src/ottla/cli/commands").glob("*_command.py")}
    assert {each.rpartition(".")[2] for each in COMMANDS.values()} == modules
    assert {"topic list", "topic offsets", "config set", "log verify", "up"} <= set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_takes_an_output_and_says_what_it_does(name: str) -> None:
    command = commands()[name]
    options = {option for param in command.params for option in param.opts}
    # The arguments of a server are read by a parser of its own, with tests of its own; the others
    # serve until they are stopped, and print no rows.
    assert name in {"server", "console", "mcp"} or {"-o", "--output"} <= options
    assert command.help and command.help.splitlines()[0].strip()


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_works(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "…" not in done.output, "a word is cut off in a terminal of 80 columns"


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_loses_no_brackets_to_markup(name: str) -> None:
    command = commands()[name]
    texts = [command.help or "", *(getattr(param, "help", None) or "" for param in command.params)]
    for text in texts:
        assert not re.search(r"(?<!\\)\[[a-z/#@]", text), f"write \\\\[ in {text!r}"


def test_help_of_format_shows_how_to_write_a_user() -> None:
    done = CliRunner().invoke(app, ["format", "--help"], env={"COLUMNS": "80"})
    assert "SCRAM-SHA-256=[name=NAME,password=PASSWORD]" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "list", "-o", "xml"],
        ["topic", "list", "--bootstrap", "nowhere:port"],
        ["topic", "list", "-X", "no-pair"],
        ["topic", "list", "-X", "security.protocol=TLS"],
        ["topic", "list", "-X", "ssl.trutstore.location=x"],
        ["topic", "list", "--command-config", "/nowhere.properties"],
        ["topic", "list", "--profile", "unknown"],
        ["profile", "set", "x"],
        ["topic", "list", "--bootstrap", ","],
        ["topic", "create", "t", "-c", "no-pair"],
        ["topic", "alter", "t"],
        ["topic", "offsets", "t", "--time", "soon"],
        ["config", "set", "topic", "t"],
        ["config", "get", "broker", "one", "k"],
        ["consume", "t", "-o", "nowhere"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "-c", "0"],
        ["produce", "t", "-D", ""],
        ["produce", "t", "-z", "rar"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_so_on_stderr(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stdout == "" and done.stderr


def test_nobody_there_ends_with_1_and_says_what_to_do() -> None:
    done = CliRunner().invoke(app, ["topic", "list", "-b", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert done.stdout == "" and "ottla up" in done.stderr


def test_the_version_behind_other_options() -> None:
    done = CliRunner().invoke(app, ["-o", "json", "--version"])
    assert done.exit_code == 0 and done.stdout.startswith("ottla ")


def test_the_version_is_quick() -> None:
    """Little more work than an interpreter that does nothing; waiting does not count.

    Some 70 ms of it; the bound is what the imports of a whole command (half a second) would break.
    """

    def least_work(*arguments: str) -> float:
        spent = []
        for _ in range(4):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(spent)

    assert least_work("-m", "ottla.cli.main", "--version") < least_work("-c", "pass") + 0.25


def test_naming_a_command_loads_no_other() -> None:
    code = (
        "import sys; from ottla.cli.app import app\n"
        "try: app(['topic', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('ottla.'))[-1:])\n"
        "print([m for m in sys.modules if m.startswith(('ottla.node', 'ottla.storage'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout.splitlines()[-1]) == []
