"""Tables on a terminal: no line is wider than it, and nothing of them is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import exact_bytes, render
from ottla.operations.sizes import ByteCount

LONG = "payments.eu-central-1.card-authorisations.dead-letters.v2.retries-after-30-minutes"
MEMBER = "consumer-payments-settlement-7f6d9c5b4-x2x9q-3b0ac6f1-6f57-4a9d-9d7e-2f3c1b0a9e8d"


CELLS = st.none() | st.booleans() | st.integers() | st.text(max_size=200)
ROWS = st.lists(
    st.fixed_dictionaries(
        {}, optional={name: CELLS for name in ("topic", "isr", "first_offset", "b", "c", "d", "e")}
    ),
    max_size=4,
)


@given(ROWS, st.integers(40, 120))
def test_every_line_of_every_table_fits(rows: list[dict[str, object]], width: int) -> None:
    for answer in (rows, {"name": LONG, "partitions": rows}, {LONG: LONG}):
        text = render(answer, Output.TABLE, width)  # type: ignore[arg-type]
        assert all(len(line) <= width for line in text.splitlines()), text


@given(st.lists(st.text("abcdef-._,", min_size=1, max_size=300), min_size=1, max_size=5))
def test_wrapped_cells_lose_nothing(names: list[str]) -> None:
    text = render([{"partition": 7, "name": each} for each in names], Output.TABLE, 40)
    found = [line[len("PARTITION  ") :] for line in text.splitlines()[1:]]
    assert "".join(found) == "".join(names)


def test_without_a_terminal_every_row_is_one_line() -> None:
    text = render([{"topic": LONG, "member": MEMBER, "lag": 12}], Output.TABLE, None)
    assert text.splitlines()[1] == f"{LONG}  {MEMBER}   12"


def test_numbers_are_never_broken_and_names_are_broken_after_separators() -> None:
    rows = [{"topic": LONG, "partition": 12, "log_end_offset": 123_456_789_012, "member": MEMBER}]
    text = render(rows, Output.TABLE, 80)
    assert "123456789012" in text
    assert re.search(r"^payments\.eu-central-1\.\s+12  ", text, re.M), text
    assert text.startswith("TOPIC")


def test_columns_without_values_make_space_for_the_others() -> None:
    rows = [{"topic": LONG, "lag": 3, "eta": None}, {"topic": LONG, "lag": None, "eta": None}]
    assert render(rows, Output.TABLE, 80).startswith("TOPIC") and "ETA" not in render(
        rows, Output.TABLE, 80
    )
    assert "ETA" in render(rows, Output.TABLE), "in a pipe columns are always the same"
    assert "ETA" in render([{"topic": "t", "lag": 3, "eta": None}], Output.TABLE, 80)


def test_table_with_too_many_columns_becomes_a_block_per_row() -> None:
    row = {f"column_{number}": f"value-{number}-of-this-row" for number in range(9)}
    text = render([row, row], Output.TABLE, 80)
    assert text.count("\n\n") == 1
    assert text.splitlines()[0] == "column_0  value-0-of-this-row"


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_sizes_are_human_in_tables_and_exact_for_programs(output: Output) -> None:
    rows = [{"directory": "/d", "size": ByteCount(1_610_612_736)}]
    assert render(rows, Output.TABLE).splitlines()[1].split(maxsplit=1) == ["/d", "1.5 GiB"]
    assert "1610612736" in render(rows, output) and "GiB" not in render(rows, output)
    assert "1610612736" in render(exact_bytes(rows), Output.TABLE)
