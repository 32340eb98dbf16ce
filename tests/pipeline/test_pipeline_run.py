"""Pipelines as commands: a project that fails and resumes; at night the example on a cluster."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from source_cluster import SourceCluster, wait_until
from spark_session import java_missing
from standalone import JAVA_OPTIONS, executors_started, kill_executor, run_standalone

from ottla.spark.project import write_project

SHOP = Path(__file__).parents[2] / "examples" / "shop"

CONNECT_PORT = 15002  # the default port of Spark Connect

MISSING = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.table
def missing():
    reader = spark.readStream.format("ottla").option("subscribe", "shop-nowhere")
    reader = reader.option("kafka.bootstrap.servers", spark.conf.get("ottla.bootstrap"))
    return reader.load().select("value")
"""

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.skipif(java_missing() is not None, reason=str(java_missing())),
]


def begin(*words: str) -> "subprocess.Popen[str]":
    """Start a command without any environment variables of Spark."""
    environment = {key: value for key, value in os.environ.items() if "SPARK" not in key}
    environment["JAVA_TOOL_OPTIONS"] = JAVA_OPTIONS
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ended(running: "subprocess.Popen[str]", *, fails: bool = False) -> tuple[str, str]:
    out, message = running.communicate(timeout=600)
    assert (running.returncode != 0) == fails, message[-4000:]
    return out, message


def pipeline(*words: str, fails: bool = False) -> tuple[str, str]:
    return ended(begin("-m", "ottla.cli.main", "pipeline", *words), fails=fails)


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Listen on a port as another pipeline would, unless one already does."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(socket.create_server(("", port)))
        yield


def test_project_reports_a_failed_flow_and_resumes(cluster, tmp_path):
    """The flow that completes beside the failed one does not read its records twice."""
    topic, root = cluster.create("events", 2), tmp_path / "shop"
    cluster.produce(topic, range(30), 0)
    write_project(root, "shop", cluster.node.bootstrap)
    definitions = root / "transformations"
    events = definitions / "events.py"
    events.write_text(
        events.read_text().replace('"subscribe", "events"', f'"subscribe", "{topic}"')
    )
    (definitions / "missing.py").write_text(MISSING)
    with taken(CONNECT_PORT):
        script = Path(__file__).with_name("pipeline_runs.py")
        out, _ = ended(begin(str(script), str(root), cluster.node.bootstrap))
    failed, resumed = json.loads(out.splitlines()[-1])

    assert failed["status"] == 1
    assert "default.events: completed" in failed["messages"]
    error = json.loads(failed["messages"][failed["messages"].index("\n{") :])["error"]
    message, details = error.splitlines()
    assert "missing" in message
    assert "shop-nowhere" in message
    assert details.startswith("details: ")

    assert resumed["status"] == 0, resumed
    flows = {each["flow"]: each for each in json.loads(resumed["out"])}
    assert flows["spark_catalog.default.events.events"]["records"] == 30
    assert flows["spark_catalog.default.events.events"]["lag"] == 0
    rows = pq.read_table(root / "state" / "warehouse" / "events").to_pylist()
    assert sorted(int(row["value"]) for row in rows) == list(range(30))
    assert "default.events_by_key: completed" in resumed["messages"]


@pytest.mark.nightly
def test_example_runs_resumes_and_reports_errors(spark_node, request, tmp_path):
    """Runs on a cluster that loses an executor; then locally, without reading records twice."""
    cluster = SourceCluster(spark_node, request.node.name, tmp_path)
    shop = tmp_path / "shop"
    shutil.copytree(SHOP, shop, ignore=shutil.ignore_patterns("state"))
    asked = ("--bootstrap", spark_node.bootstrap, "--orders", "200")
    with run_standalone(tmp_path) as master:
        example = begin(str(shop / "run.py"), *asked, "--master", master)
        planned = shop / "state" / "storage" / "_checkpoints"
        wait_until(
            lambda: list(planned.rglob("offsets/0")) or example.poll() is not None,
            "the first batch",
            seconds=400,
        )
        if example.poll() is None:
            kill_executor(tmp_path)
        out, message = ended(example)
        assert executors_started(tmp_path) > 2
    minutes = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(minutes) >= 15
    assert len({each["minute"] for each in minutes}) == len(minutes), "a minute came twice"
    assert sum(each["orders"] for each in minutes) <= 200
    assert "orders_after_clicks: completed" in message
    assert "best_products: completed" in message
    where = ("--bootstrap", spark_node.bootstrap, "-o", "json")
    flows = {each["flow"]: each for each in json.loads(pipeline("status", str(shop), *where)[0])}
    assert flows["spark_catalog.default.orders.orders"]["records"] == 200
    assert flows["spark_catalog.default.orders.orders"]["lag"] == 0

    before = cluster.values(subscribe="shop-revenue")
    (shop / "transformations" / "missing.py").write_text(MISSING)
    settings = ("--set", f"ottla.bootstrap={spark_node.bootstrap}")
    with taken(CONNECT_PORT):
        _, message = pipeline("run", str(shop), *settings, fails=True)
    last, details = message.splitlines()[-2:]
    assert details.startswith("details: ")
    assert "missing" in last
    assert "shop-nowhere" in last
    assert "orders_after_clicks: completed" in message
    assert cluster.values(subscribe="shop-revenue") == before
