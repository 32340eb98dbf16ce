"""How commands fail: suggestions, output formats of errors, exit codes."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.terminal.failures import error_text, requested_output
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("topic list", Output.TABLE),
        ("topic list -o json", Output.JSON),
        ("-o yaml topic list", Output.YAML),
        ("topic list --output=json", Output.JSON),
        ("topic list -ojson", Output.JSON),
        ("consume t -o 5 -o json -o end", Output.JSON),
        ("topic list -o json -o table", Output.TABLE),
        ("topic list -o", Output.TABLE),
        ("produce t -- -o json", Output.TABLE),
        ("topic create --output", Output.TABLE),
    ],
)
def test_output_format_is_found_in_any_command_line(arguments: str, output: Output) -> None:
    assert requested_output(arguments.split()) is output


def test_error_document_has_the_message_and_the_codes() -> None:
    assert error_text("no", Output.TABLE, 1, "UNKNOWN_TOPIC_ID") == "no\n"
    found = json.loads(error_text("no", Output.JSON, 1, "UNKNOWN_TOPIC_ID"))
    assert found == {"error": "no", "kafka_error": "UNKNOWN_TOPIC_ID", "exit_code": 1}


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_usage_errors_are_documents_where_asked_for(output: str, load: object) -> None:
    assert callable(load)
    for arguments in (["topic", "lst"], ["topic", "list", "--bootstrp"], ["topic", "create"]):
        done = CliRunner().invoke(app, ["-o", output, *arguments])
        assert done.exit_code == 2 and done.stdout == ""
        found = load(done.stderr)
        assert found["exit_code"] == 2 and found["error"]


def test_failures_are_documents_where_asked_for() -> None:
    done = CliRunner().invoke(app, ["topic", "list", "-b", "127.0.0.1:1", "-o", "json"])
    assert done.exit_code == 1 and done.stdout == ""
    found = json.loads(done.stderr)
    assert found["exit_code"] == 1
    assert "127.0.0.1:1: connection refused;" in found["error"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["topc"], "topic"),
        (["grup", "list"], "group"),
        (["topic", "lst"], "list"),
        (["topic", "list", "--bootstrp", "x"], "--bootstrap"),
    ],
)
def test_misspelt_commands_and_options_are_suggested(arguments: list[str], meant: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and meant in done.stderr.replace("grup", "")


def test_only_close_names_are_suggested() -> None:
    assert did_you_mean("lif", ["life", "orders"]) == "; did you mean 'life'?"
    assert did_you_mean("zzz", ["life", "orders"]) == ""


def test_random_uuid_is_a_new_id_each_time() -> None:
    made = {CliRunner().invoke(app, ["random-uuid"]).stdout.strip() for _ in range(3)}
    assert len(made) == 3 and all(len(each) == 22 for each in made)
