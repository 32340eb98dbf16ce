"""The example pipeline as a newcomer runs it: on a cluster, again, with a wrong definition."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_world import World
from spark_session import java_missing
from standalone import run_standalone

SHOP = Path(__file__).parents[2] / "examples" / "shop"

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
    pytest.mark.timeout(600),
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(java_missing() is not None, reason=str(java_missing())),
]


def run(*words: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if "SPARK" not in key}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=550, env=environment
    )
    assert (done.returncode != 0) == fails, done.stderr[-4000:]
    return done


def test_the_example_runs_goes_on_and_says_what_is_wrong(spark_node, request, tmp_path):
    world = World(spark_node, request.node.name, tmp_path)
    shop = tmp_path / "shop"
    shutil.copytree(SHOP, shop, ignore=shutil.ignore_patterns("state"))
    asked = ("--bootstrap", spark_node.bootstrap, "--orders", "200")
    with run_standalone(tmp_path) as master:
        first = run(str(shop / "run.py"), *asked, "--master", master)
    minutes = [json.loads(line) for line in first.stdout.splitlines() if line.startswith("{")]
    assert len(minutes) >= 15
    assert sum(each["orders"] for each in minutes) <= 200
    assert "orders_after_clicks: completed" in first.stderr
    assert "best_products: completed" in first.stderr

    before = world.values(subscribe="shop-revenue")
    settings = ("--set", f"ottla.bootstrap={spark_node.bootstrap}")
    run("-m", "ottla.cli.main", "pipeline", "run", str(shop), *settings)
    assert world.values(subscribe="shop-revenue") == before
    where = ("--bootstrap", spark_node.bootstrap, "-o", "json")
    status = run("-m", "ottla.cli.main", "pipeline", "status", str(shop), *where)
    flows = {each["flow"]: each for each in json.loads(status.stdout)}
    assert flows["spark_catalog.default.orders.orders"]["records"] == 200
    assert flows["spark_catalog.default.orders.orders"]["lag"] == 0

    (shop / "transformations" / "missing.py").write_text(MISSING)
    failed = run("-m", "ottla.cli.main", "pipeline", "run", str(shop), *settings, fails=True)
    last = failed.stderr.splitlines()[-1]
    assert "missing" in last
    assert "shop-nowhere" in last
