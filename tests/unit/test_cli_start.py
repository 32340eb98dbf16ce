"""What starting a node loads and reads: little, for it is done often."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.output import Output
from ottla.cli.server_words import ServerWords, read_words

# Modules of ours and of others that serving may load: what is there now and some room to grow.
# Each costs a fraction of a millisecond of every start, and memory for as long as a node runs.
MODULES_MAX = 590
# Loaded by nobody who only serves: the command line's libraries, and what only some clients need.
UNWANTED = {"typer", "click", "rich", "pydantic", "email", "importlib.metadata", "yaml"}


def test_a_server_loads_no_command_line_and_not_too_much() -> None:
    code = (
        "import sys; import ottla.cli.main, ottla.cli.server_words, ottla.cli.serving;"
        "print(len(sys.modules), *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *names = done.stdout.split()
    assert not UNWANTED & set(names)
    assert int(count) <= MODULES_MAX


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], ServerWords("a")),
        (["a", "-o", "json"], ServerWords("a", output=Output.JSON)),
        (["--output", "yaml", "a"], ServerWords("a", output=Output.YAML)),
        (["--stop-at-end-of-input", "a"], ServerWords("a", is_bound_to_input=True)),
        (["a", "--override", "x=1", "--override", "y="], ServerWords("a", ("x=1", "y="))),
    ],
)
def test_plain_words_are_read_at_once(words: list[str], expected: ServerWords) -> None:
    assert read_words(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b"],
        [""],
        ["--help"],
        ["a", "--help"],
        ["-a"],
        ["a", "--override"],
        ["a", "--override", "x"],
        ["a", "--override=x=1"],
        ["a", "-o"],
        ["a", "-o", "xml"],
        ["--", "a"],
    ],
)
def test_other_words_are_left_to_the_library(words: list[str]) -> None:
    assert read_words(words) is None


WORDS = st.sampled_from(
    ["a", "b", "-o", "json", "table", "--override", "k=v", "k", "--stop-at-end-of-input", "--help"]
)


@given(st.lists(WORDS, max_size=6))
def test_what_is_read_at_once_is_what_the_library_reads(words: list[str]) -> None:
    from unittest import mock

    from typer.testing import CliRunner

    from ottla.cli import server_command

    seen: list[ServerWords] = []
    with mock.patch.object(server_command, "serve_words", seen.append):
        done = CliRunner().invoke(server_command.app, words)
    plain = read_words(words)
    if plain is not None:
        assert done.exit_code == 0
        assert seen == [plain]


def test_a_wrong_word_ends_with_a_sentence_of_the_library() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "server", "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def test_a_file_that_is_not_there_ends_with_a_sentence() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "server", "no-such-file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no-such-file" in done.stderr
    assert "Traceback" not in done.stderr
