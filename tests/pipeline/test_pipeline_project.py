"""A pipeline project: its files, the state of its runs, and its status."""

import json
import os
import subprocess
import sys

import pytest
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.commands.pipeline_progress import Lags, lag_of
from ottla.protocol.types import TopicPartition
from ottla.spark.project import BadProject, FlowProgress, Project, Run, write_project
from ottla.spark.runner import FlowEvent, _cause, read_event


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path / "shop", "shop", "broker:9092")
    return Project.find(tmp_path / "shop")


def ottla(*words):
    return CliRunner().invoke(app, ["pipeline", *words])


def checkpoint(project, flow, batch, ends, *, attempt=0, is_finished=True):
    where = project.storage / "_checkpoints" / flow / str(attempt)
    for log in ("offsets", "commits"):
        (where / log).mkdir(parents=True, exist_ok=True)
    topics = {"t": {"id": "x", "start": dict.fromkeys(ends, 0), "end": ends}}
    lines = ["v1", "{}", json.dumps({"version": 1, "topics": topics}), '{"logOffset":0}', "-"]
    (where / "offsets" / str(batch)).write_text("\n".join(lines))
    if is_finished:
        (where / "commits" / str(batch)).write_text("v1\n{}")


def test_project_is_found_from_a_subdirectory(project, monkeypatch):
    assert project.settings()["ottla.bootstrap"] == "broker:9092"
    assert project.name == "shop"
    monkeypatch.chdir(project.root / "transformations")
    assert Project.find(None).spec == project.spec


def test_init_does_not_change_existing_files(project, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = ottla("init", str(project.root))
    assert done.exit_code == 1
    assert "already exists" in done.output
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_or_invalid_project_is_rejected(tmp_path):
    assert "ottla pipeline init" in ottla("run", str(tmp_path)).output
    (tmp_path / "spark-pipeline.yml").write_text("- no")
    with pytest.raises(BadProject, match="keys and values"):
        Project.find(tmp_path).settings()


def test_flow_progress_is_its_last_finished_batch(project):
    checkpoint(project, "cat/db/orders/orders", 0, {"0": 5})
    checkpoint(project, "cat/db/orders/orders", 1, {"0": 9, "1": 4})
    checkpoint(project, "cat/db/orders/orders", 2, {"0": 20, "1": 4}, is_finished=False)
    checkpoint(project, "sink/to_topic", 0, {"0": 100}, attempt=0)
    checkpoint(project, "sink/to_topic", 0, {"0": 1}, attempt=1)
    orders, sink = project.flows()
    assert (orders.name, orders.batch) == ("cat.db.orders.orders", 1)
    assert orders.ends == {TopicPartition("t", 0): 9, TopicPartition("t", 1): 4}
    assert sink.ends == {TopicPartition("t", 0): 1}


def test_lag_is_computed_for_known_partitions():
    flow = FlowProgress("f", 0, 0.0, {TopicPartition("t", 0): 7, TopicPartition("t", 1): 4})
    ends = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 4}
    assert lag_of(flow, ends) == 3
    assert lag_of(flow, {TopicPartition("t", 0): 10}) is None
    assert lag_of(FlowProgress("g", 0, 0.0, {}), ends) is None


def test_progress_reports_rate_lag_and_time_to_catch_up(project, monkeypatch):
    monkeypatch.setattr(
        "ottla.cli.commands.pipeline_progress.latest",
        lambda flows, at: {TopicPartition("t", 0): 1100},
    )
    lags = Lags(project, "broker:9092")
    assert lags.lines(lags.samples()) == []
    for batch, end in enumerate((100, 600)):
        checkpoint(project, "orders", batch, {"0": end})
        (commit,) = project.storage.rglob(f"commits/{batch}")
        os.utime(commit, (1000.0 + 2 * batch, 1000.0 + 2 * batch))
        (line,) = lags.lines(lags.samples())
    assert line == "orders: batch 1, 250 records/s, 500 behind, caught up in 2 s"
    assert lags.samples() == []


def test_status_and_stop_find_the_running_process(project):
    assert "never run" in ottla("status", str(project.root)).output
    assert ottla("stop", str(project.root)).exit_code == 1
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as running:
        project.write_run(Run(running.pid, 1.0))
        assert f"running (process {running.pid})" in ottla("status", str(project.root)).output
        again = ottla("run", str(project.root))
        assert again.exit_code == 1
        assert "is already running" in again.output
        assert ottla("stop", str(project.root)).exit_code == 0
        assert running.wait(SECONDS_MAX) == -15
    assert "has ended unexpectedly" in ottla("status", str(project.root)).output
    project.write_run(Run(os.getpid(), 1.0, 2.0, "completed"))
    assert "shop: completed" in ottla("status", str(project.root)).output


def test_read_event_returns_flow_and_state():
    assert read_event("Flow a.b.c is RUNNING.") == FlowEvent(
        "a.b.c", "RUNNING", "Flow a.b.c is RUNNING."
    )
    assert read_event("Run is COMPLETED.").flow == ""
    failed = read_event("Flow 'a.b.c' has FAILED.\nError: it broke")
    assert (failed.flow, failed.state, failed.message) == ("a.b.c", "FAILED", "Error: it broke")


def test_failure_names_dataset_and_last_exception():
    message = (
        "Job aborted\nTraceback ...\nottla.client.cluster.Refused: t: UNKNOWN_TOPIC\n at x.y\n"
        "org.apache.spark.SparkException: stopped"
    )
    failures = [FlowEvent("a.orders", "FAILED", message)]
    assert _cause(failures, message) == "a.orders: ottla.client.cluster.Refused: t: UNKNOWN_TOPIC"
    assert _cause([], "first\nsecond") == "first"
    both = "ottla.a.Refused: what came of it\nottla.b.NoBroker: what began it"
    assert _cause([], both) == "ottla.b.NoBroker: what began it"
