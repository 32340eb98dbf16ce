"""`ottla pipeline tables --once` tells by its exit code whether every table is up to date."""

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.commands import pipeline_table
from ottla.cli.terminal.rendering import Row

FINE: Row = {"topic": "orders", "state": "current", "error": ""}
FAILED: Row = {"topic": "payments", "state": "failed", "error": "no such column: id"}


@pytest.mark.parametrize(
    ("options", "rows", "code"),
    [
        (["--once"], [FINE], 0),
        (["--once"], [FINE, FAILED], 1),
        ([], [FINE, FAILED], 0),  # stopped by the user: tables that failed are tried again
    ],
)
def test_once_exits_1_if_a_table_failed(
    monkeypatch: pytest.MonkeyPatch, options: list[str], rows: list[Row], code: int
) -> None:
    monkeypatch.setattr(pipeline_table, "run_tables", lambda request: rows)
    done = CliRunner().invoke(app, ["pipeline", "tables", *options])
    assert done.exit_code == code, done.output
    assert "orders" in done.stdout
    if code:
        assert done.stderr == "1 of 2 tables failed:\npayments: no such column: id\n"
