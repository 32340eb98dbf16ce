"""Tables in Delta and Iceberg, with the newest jars there are.

Both are built against inner classes of one Spark. Where they do not fit this one, Java says so by a
`LinkageError`: the table cannot be had then, which is no matter of ours, and the test is skipped
with what Java said.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import run_node

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
JARS = HERE.parents[1] / "build" / "lakehouse"
MISFITS = re.compile(
    r"java\.lang\.(?:NoSuchMethodError|NoSuchFieldError|NoClassDefFoundError|"
    r"IncompatibleClassChangeError|AbstractMethodError)[^\n]*"
)


def jars_of(name: str) -> list[str]:
    if not list(JARS.glob("*.jar")):
        if shutil.which("mvn") is None:
            pytest.skip("mvn is not installed; the jars cannot be fetched")
        command = ["mvn", "-q", "-B", "-f", str(HERE / "lakehouse.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        if subprocess.run(command).returncode:
            pytest.skip("Maven could not fetch the jars")
    return sorted(map(str, JARS.glob(f"{name}-*.jar")))


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_table_holds_every_row_once_though_a_commit_was_lost(tmp_path, name):
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    jars = ",".join(jars_of(name))
    with run_node(processes=True, directory=tmp_path / "node") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(30):
            value = json.dumps({"id": number, "amount": number / 2})
            producer.produce("orders", value, partition=number % 2)
        assert producer.flush(60) == 0
        command = [sys.executable, str(HERE / "lakehouse_driver.py"), name, node.bootstrap]
        command += ["orders", str(tmp_path), jars]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    if done.returncode and (misfit := MISFITS.search(done.stderr)):
        pytest.skip(f"{name} does not fit this Spark: {misfit[0][:200]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert found == [[number, number % 2] for number in range(30)]
