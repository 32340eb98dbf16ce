"""Every kind of job on a standalone cluster of a master and two workers, and behind Connect."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spark_environments import ROOT, python_of, requirements_of

from ottla.testing import run_node

sys.path.insert(0, str(ROOT / "tests" / "pipeline"))
from standalone import executors_started, run_connect_server, run_standalone

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]

DRIVER = Path(__file__).parent / "spark_cluster_driver.py"
COUNT, BAD = 3000, 30
GOOD = [each for each in range(COUNT) if each % 100 != 7]
# Values that are not JSON have no number.
TOPIC = {"rows": COUNT, "numbers": len(GOOD), "total": sum(GOOD)}
TABLE = {"rows": len(GOOD), "numbers": len(GOOD), "total": sum(GOOD), "dead": BAD}


def run_jobs(tmp_path: Path, python: str, format: str, *, is_connect: bool = False) -> Any:
    """Return what the driver found on a new cluster, by job."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    environment = {key: text for key, text in os.environ.items() if "SPARK" not in key}
    with ExitStack() as stack:
        node = stack.enter_context(run_node(processes=True, directory=tmp_path / "node"))
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        topics = [NewTopic(each, 3, 1) for each in ("numbers", "copy", "dead")]
        for created in admin.create_topics(topics).values():
            created.result(60)
        address = stack.enter_context(run_standalone(tmp_path, python=python))
        if is_connect:
            settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
            address = stack.enter_context(run_connect_server(tmp_path, address, settings, python))
        command = [python, str(DRIVER), address, node.bootstrap, str(tmp_path), format]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=1500, env=environment
        )
        assert executors_started(tmp_path) >= 2
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, f"{done.stderr[-6000:]}\n{results}"
    return {each["job"]: each["found"] for each in results}


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_standalone_cluster_runs_every_job(tmp_path: Path, format: str) -> None:
    python = sys.executable
    if format != "parquet":
        python = str(python_of(format, requirements_of(format)))
    found = run_jobs(tmp_path, python, format)
    assert found == {"batch": TOPIC, "stream": TOPIC, "files": TOPIC, "table": TABLE}


def test_spark_connect_runs_reads_streams_and_sinks_on_the_cluster(tmp_path: Path) -> None:
    found = run_jobs(tmp_path, sys.executable, "parquet", is_connect=True)
    assert "Spark Connect" in found.pop("refused")
    assert found == {"batch": TOPIC, "stream": TOPIC, "files": TOPIC}
