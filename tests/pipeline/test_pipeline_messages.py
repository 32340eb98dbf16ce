"""What a user reads: unreachable brokers, failures in one line, and nothing of Spark before it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.commands.pipeline_table import _stopping
from ottla.client.blocking.broker_client import ClientSettings
from ottla.client.cluster import NoBroker
from ottla.spark.project import write_project
from ottla.spark.reach import check_reach
from ottla.spark.runner import FlowEvent, Outcomes, cause_of
from ottla.spark.spark_output import START_LIMIT, into, keep_details

REACH_S = 10.0


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def settings(*bootstrap: str, **properties: str) -> ClientSettings:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientSettings(bootstrap, "test", named)


def test_unreachable_broker_is_reported_in_time_with_address_and_origin(nowhere):
    before = time.monotonic()
    with pytest.raises(NoBroker) as failed:
        check_reach(settings(nowhere), "option kafka.bootstrap.servers")
    assert time.monotonic() - before < REACH_S
    assert f"no broker answers at {nowhere} (option kafka.bootstrap.servers)" in str(failed.value)
    assert "refused" in str(failed.value).lower()


@pytest.mark.parametrize("command", ["table", "tables", "run"])
def test_command_reports_an_unreachable_broker_before_it_starts_spark(
    tmp_path, nowhere, command, monkeypatch
):
    monkeypatch.setattr("ottla.spark.reach.REACH_MS", 300)
    monkeypatch.setattr("ottla.cli.commands.pipeline_table.check_spark", lambda: None)
    monkeypatch.chdir(tmp_path)
    declared = tmp_path / "orders.yaml"
    declared.write_text(f"topic: orders\nbootstrap: {nowhere}\ntable: {{path: t}}\n")
    write_project(tmp_path / "shop", "shop", nowhere)
    words, origin = {
        "table": ([str(declared)], f"bootstrap in {declared}"),
        "tables": (["--bootstrap", nowhere], "--bootstrap"),
        "run": (["shop"], f"ottla.bootstrap in {tmp_path / 'shop' / 'spark-pipeline.yml'}"),
    }[command]
    done = CliRunner().invoke(app, ["pipeline", command, *words])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert f"no broker answers at {nowhere} ({origin})" in line
    assert "starting Spark" not in done.stderr


def test_output_of_started_processes_goes_to_the_log(tmp_path):
    """In a process of its own, because pytest has replaced the streams of this one."""
    log = tmp_path / "deep" / "spark.log"
    script = f"""
import subprocess, sys
from pathlib import Path
from ottla.spark.spark_output import into
print("before", flush=True)
noise = [sys.executable, "-c", "import sys; print('noise'); print('warning', file=sys.stderr)"]
with into(Path({str(log)!r})):
    subprocess.run(noise)
print("after")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "before\nafter\n"
    assert done.stderr == ""
    assert sorted(log.read_text().splitlines()) == ["noise", "warning"]


def test_details_are_appended_to_the_log(tmp_path):
    log = tmp_path / "spark.log"
    with into(log):
        pass
    keep_details(log, ValueError("all of it"))
    assert "ValueError: all of it" in log.read_text()


def test_process_that_did_not_start_in_time_is_explained():
    text = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x"
    assert cause_of(text) == START_LIMIT
    assert "10 s" in START_LIMIT
    assert "run it again" in START_LIMIT


@pytest.mark.parametrize(
    ("message", "failures", "starts"),
    [
        ("Python worker failed to connect back.", 2, 3),
        ("Python worker failed to connect back.", 3, None),
        ("another failure", 1, None),
    ],
)
def test_stream_is_started_again_if_a_process_did_not_start_in_time(
    monkeypatch, message, failures, starts
):
    from pyspark.errors import StreamingQueryException

    from ottla.tables import table_writer
    from ottla.tables.job import parse_job

    seen = []

    class Query:
        def awaitTermination(self) -> None:
            if len(seen) <= failures:
                raise StreamingQueryException(message)

    monkeypatch.setattr(
        table_writer, "start_table", lambda spark, job, take_over: seen.append(job) or Query()
    )
    job = parse_job({"topic": "t", "table": {"path": "x"}})
    if starts is None:
        with pytest.raises(StreamingQueryException):
            table_writer.run_table(None, job)
        assert len(seen) == failures
    else:
        table_writer.run_table(None, job)
        assert len(seen) == starts


def test_table_job_behind_spark_connect_is_rejected_in_one_line():
    from pyspark.sql.connect.session import SparkSession

    from ottla.tables.job import BadJob, parse_job
    from ottla.tables.table_writer import run_table

    remote = object.__new__(SparkSession)
    with pytest.raises(BadJob, match="do not run behind Spark Connect") as raised:
        run_table(remote, parse_job({"topic": "t", "table": {"path": "x"}}))
    assert "--master" in str(raised.value)
    assert "\n" not in str(raised.value)


# -- completed and failed ----------------------------------------------------------


def told(*events: tuple[str, str], failed: bool) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    outcomes = Outcomes(lambda event: found.append((event.flow, event.state or event.message)))
    for flow, state in events:
        outcomes.add(FlowEvent(flow, state if flow else "", state))
    outcomes.end(failed=failed)
    return found


def test_completed_is_never_reported_before_failed():
    events = [("a", "RUNNING"), ("a", "COMPLETED"), ("", "Run is COMPLETED."), ("a", "FAILED")]
    assert told(*events, failed=True) == [("a", "RUNNING"), ("a", "FAILED")]


def test_flows_that_completed_are_reported_though_another_failed():
    events = [("a", "COMPLETED"), ("b", "FAILED"), ("", "Run is COMPLETED.")]
    assert told(*events, failed=True) == [("b", "FAILED"), ("a", "COMPLETED")]


def test_completed_run_is_reported_last():
    events = [("a", "COMPLETED"), ("", "Run is COMPLETED.")]
    assert told(*events, failed=False) == [("a", "COMPLETED"), ("", "Run is COMPLETED.")]


def test_first_signal_stops_tables_after_their_round_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGTERM)
    stopped = threading.Event()
    with _stopping(stopped) as signalled:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signalled.wait(SECONDS_MAX)
        assert stopped.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_log_is_not_needed(tmp_path):
    with into(None):
        pass
    keep_details(None, ValueError("x"))
    assert list(Path(tmp_path).iterdir()) == []
