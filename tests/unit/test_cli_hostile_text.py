"""Names and values with control characters: nothing steers a terminal or forges a row."""

import csv
import io
import json

import pyarrow as pa
import pytest

from ottla.cli.commands.sql_output import SqlOutput, open_writer
from ottla.cli.options import say
from ottla.cli.terminal.failures import error_text
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import render, render_line

# ESC, CSI as one character, DEL, CR, a bidirectional override, a tag character beyond 16 bits.
HOSTILE = "a\x1b[2J\x9b31m\x7f\rb\u202ec\U000e0041"
STEERING = set("\x1b\x9b\x7f\r\u202e\U000e0041")


def written(output: SqlOutput, value: str, *, is_terminal: bool, name: str = "v") -> str:
    out = io.BytesIO()
    writer = open_writer(output, out, is_terminal=is_terminal)
    writer.write(pa.record_batch({name: [value], "n": [1]}))
    writer.close()
    return out.getvalue().decode()


@pytest.mark.parametrize("output", list(Output))
def test_answer_of_a_command_contains_no_control_character(output: Output) -> None:
    for answer in ([{"group": HOSTILE}], {HOSTILE: HOSTILE}, {"x": [{HOSTILE: {HOSTILE: 1}}]}):
        assert not STEERING & set(render(answer, output))


def test_json_of_hostile_text_is_read_back_unchanged() -> None:
    assert json.loads(render({HOSTILE: [HOSTILE]}, Output.JSON)) == {HOSTILE: [HOSTILE]}
    line = render_line({"payload": HOSTILE}, Output.JSON)
    assert json.loads(line) == {"payload": HOSTILE} and not STEERING & set(line)
    assert "ütf ✓ 😀" in render_line({"payload": "ütf ✓ 😀"}, Output.JSON)


@pytest.mark.parametrize("output", [each for each in SqlOutput if each is not SqlOutput.PARQUET])
def test_result_of_a_query_on_a_terminal_contains_no_control_character(output: SqlOutput) -> None:
    assert not STEERING & set(written(output, HOSTILE, is_terminal=True, name=HOSTILE))


def test_drawing_of_a_plan_contains_no_control_character_except_line_ends() -> None:
    out = io.BytesIO()
    writer = open_writer(SqlOutput.TABLE, out, is_terminal=True)
    writer.write(pa.record_batch({"explain_key": ["plan"], "explain_value": [f"{HOSTILE}\nnext"]}))
    writer.close()
    assert not STEERING & set(out.getvalue().decode())
    assert out.getvalue().endswith(b"\nnext\n")


@pytest.mark.parametrize("value", ["a\rb", "a\r\nb", "a\nb", 'a"b', "a,b", "", HOSTILE])
def test_value_makes_no_row_of_its_own_in_csv(value: str) -> None:
    text = written(SqlOutput.CSV, value, is_terminal=False)
    assert text.startswith("v,n\n") and text.endswith("\n")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["v", "n"], [value, "1"]]


def test_error_and_message_contain_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not STEERING & set(error_text(HOSTILE, Output.TABLE, 1))
    assert error_text("first\nsecond", Output.TABLE, 1) == "first\nsecond\n"
    say(HOSTILE)
    assert not STEERING & set(capsys.readouterr().err)
