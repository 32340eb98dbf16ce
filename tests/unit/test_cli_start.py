"""What starting a node loads and reads: little, for it is done often."""

import subprocess
import sys

import pytest

from ottla.cli.commands.server_arguments import ServerArguments, parse_arguments
from ottla.cli.terminal.output import Output

pytestmark = pytest.mark.slow

# Modules of ours and of others that serving may load: what is there now and some room to grow.
# Each costs a fraction of a millisecond of every start, and memory for as long as a node runs.
MODULES_MAX = 680
# Loaded by nobody who only serves: the command line's libraries, and what only some clients need.
UNWANTED = {"typer", "click", "rich", "pydantic", "email", "importlib.metadata", "yaml"}
UNWANTED |= {"urllib.parse", "ottla.config.otlp_headers"}


def test_server_loads_no_command_line_library_and_few_modules() -> None:
    code = (
        "import sys; import ottla.cli.main, ottla.cli.commands.server_arguments;"
        "import ottla.cli.commands.serving;"
        "print(len(sys.modules), *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *names = done.stdout.split()
    assert not UNWANTED & set(names)
    assert int(count) <= MODULES_MAX


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], ServerArguments("a")),
        (["a", "-o", "json"], ServerArguments("a", output=Output.JSON)),
        (["--output", "yaml", "a"], ServerArguments("a", output=Output.YAML)),
        (["--stop-at-end-of-input", "a"], ServerArguments("a", is_bound_to_input=True)),
        (["a", "--override", "x=1", "--override", "y="], ServerArguments("a", ("x=1", "y="))),
    ],
)
def test_arguments_are_read(words: list[str], expected: ServerArguments) -> None:
    assert parse_arguments(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b"],
        [""],
        ["-a"],
        ["a", "--override"],
        ["a", "--override", "x"],
        ["a", "-o"],
        ["a", "-o", "xml"],
        ["a", "--over", "x=1"],
        ["a", "--truncate-metadata-at", "-1"],
        ["a", "--truncate-metadata-at", "1", "--rejoin-quorum"],
    ],
)
def test_wrong_arguments_exit_with_usage(words: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(words)
    assert caught.value.code == 2
    assert "usage: ottla server" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["a", "-h"]])
def test_help_names_every_option(words: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(words)
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--override", "--stop-at-end-of-input", "--rejoin-quorum", "--output"):
        assert option in shown


def test_list_of_commands_leads_to_the_same_parser() -> None:
    from unittest import mock

    from typer.testing import CliRunner

    from ottla.cli.commands import server_command

    seen: list[ServerArguments] = []
    with mock.patch.object(server_command, "serve_node", seen.append):
        done = CliRunner().invoke(server_command.app, ["a", "--override", "x=1", "-o", "json"])
    assert done.exit_code == 0
    assert seen == [ServerArguments("a", ("x=1",), output=Output.JSON)]


def test_unknown_option_is_named() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "server", "a", "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def test_missing_file_is_named_without_a_traceback() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "server", "no-such-file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no-such-file" in done.stderr
    assert "Traceback" not in done.stderr


def test_sql_loads_no_library_that_its_query_does_not_use() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "ottla.cli.main", "sql", "-o", "csv"]
    done = subprocess.run([*command, "select 7 n"], capture_output=True, text=True, check=True)
    assert done.stdout == "n\n7\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"pyarrow.dataset", "duckdb"} <= loaded
    unused = ("numpy.", "pandas.", "fastavro.", "google.protobuf.", "cryptography.x509.")
    assert not [each for each in loaded if each.startswith(unused)]


def test_light_arrow_builds_arrays_without_pandas() -> None:
    code = (
        "import sys; from ottla.cli.commands.light_arrow import import_light_arrow;"
        "import_light_arrow();"
        "import pyarrow; print(pyarrow.array([1, None]).to_pylist(), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, None] False\n"
