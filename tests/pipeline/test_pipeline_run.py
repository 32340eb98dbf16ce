"""The example pipeline as a newcomer runs it: on a cluster, again, with a wrong definition."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from source_world import World, wait_until
from spark_session import java_missing
from standalone import JAVA_OPTIONS, executors_started, kill_executor, run_standalone

SHOP = Path(__file__).parents[2] / "examples" / "shop"

CONNECT_PORT = 15002  # where Spark serves Spark Connect unless told otherwise

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
    """Start a command as a newcomer does, who has set nothing of Spark's."""
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
    out, said = running.communicate(timeout=600)
    assert (running.returncode != 0) == fails, said[-4000:]
    return out, said


def pipeline(*words: str, fails: bool = False) -> tuple[str, str]:
    return ended(begin("-m", "ottla.cli.main", "pipeline", *words), fails=fails)


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Have a port served, as by another pipeline on this machine; maybe there is one."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(socket.create_server(("", port)))
        yield


def test_the_example_runs_goes_on_and_says_what_is_wrong(spark_node, request, tmp_path):
    """On a cluster that loses an executor under it; then here, where nothing is read again."""
    world = World(spark_node, request.node.name, tmp_path)
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
        out, said = ended(example)
        assert executors_started(tmp_path) > 2
    minutes = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(minutes) >= 15
    assert len({each["minute"] for each in minutes}) == len(minutes), "a minute came twice"
    assert sum(each["orders"] for each in minutes) <= 200
    assert "orders_after_clicks: completed" in said
    assert "best_products: completed" in said
    where = ("--bootstrap", spark_node.bootstrap, "-o", "json")
    flows = {each["flow"]: each for each in json.loads(pipeline("status", str(shop), *where)[0])}
    assert flows["spark_catalog.default.orders.orders"]["records"] == 200
    assert flows["spark_catalog.default.orders.orders"]["lag"] == 0

    before = world.values(subscribe="shop-revenue")
    (shop / "transformations" / "missing.py").write_text(MISSING)
    settings = ("--set", f"ottla.bootstrap={spark_node.bootstrap}")
    with taken(CONNECT_PORT):
        _, said = pipeline("run", str(shop), *settings, fails=True)
    last = said.splitlines()[-1]
    assert "missing" in last
    assert "shop-nowhere" in last
    assert "orders_after_clicks: completed" in said
    assert world.values(subscribe="shop-revenue") == before
