"""``ottla pipeline tables`` as a process: tables, a topic that comes later, a clean stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest
from source_cluster import SourceCluster, wait_until
from spark_session import java_missing
from standalone import JAVA_OPTIONS
from tests.patience import SECONDS_MAX

from ottla.formats.sql_names import table_name

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(java_missing() is not None, reason=str(java_missing())),
]
START_S = 300.0
"""Spark starts slowly on a busy machine."""
SETTINGS = {
    "ottla.table.format": "parquet",
    "ottla.table.value.format": "json",
    "ottla.table.value.schema": "id bigint",
}


class Command:
    """The running command, and the files that it writes."""

    def __init__(self, cluster: SourceCluster) -> None:
        self.cluster = cluster
        self.root = cluster.tmp_path
        self.words = [
            *("--bootstrap", cluster.node.bootstrap),
            *("--warehouse", str(self.root / "lake")),
            *("--state", str(self.root / "state")),
        ]

    def create(self, short: str, numbers: range) -> str:
        named = {key.replace(".", "_"): value for key, value in SETTINGS.items()}
        topic = self.cluster.create(short, **named)
        self.cluster.produce(topic, [json.dumps({"id": each}) for each in numbers])
        return topic

    def start(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if "SPARK" not in key}
        words = ["pipeline", "tables", *self.words, "--master", "local[2]", "-o", "json"]
        return subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
            start_new_session=True,
        )

    def ids(self, topic: str) -> list[int]:
        table = self.root / "lake" / table_name(topic)
        files = [each for each in table.rglob("*.parquet") if is_visible(each.relative_to(table))]
        try:
            return sorted(row["id"] for each in files for row in pq.read_table(each).to_pylist())
        except OSError:  # a file was merged with others
            return []

    def status(self) -> dict[str, dict[str, object]]:
        words = ["pipeline", "tables", "--status", "--state", str(self.root / "state")]
        done = subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *words, "-o", "json"],
            capture_output=True,
            check=True,
        )
        return {each["topic"]: each for each in json.loads(done.stdout)}


def is_visible(path: Path) -> bool:
    """Return whether a reader of the table sees a file."""
    return not any(each.startswith((".", "_")) for each in path.parts)


def test_command_keeps_tables_finds_a_new_topic_and_stops_cleanly(cluster):
    command = Command(cluster)
    topics = [command.create("a", range(5)), command.create("b", range(10, 13))]
    output = cluster.tmp_path / "command.log"
    with output.open("wb") as log:
        running = command.start(log)
    try:

        def until(condition: object, what: str) -> None:
            def step() -> bool:
                assert running.poll() is None, output.read_text()[-3000:]
                return bool(condition())  # type: ignore[operator]

            wait_until(step, what, seconds=START_S)

        until(lambda: command.ids(topics[0]) == [*range(5)], "the first table")
        until(lambda: command.ids(topics[1]) == [10, 11, 12], "the second table")
        late = command.create("late", range(2))
        until(lambda: command.ids(late) == [0, 1], "the table of a new topic")
        cluster.produce(topics[0], ['{"id": 5}'])
        until(lambda: command.ids(topics[0]) == [*range(6)], "a row that was added")
        until(lambda: command.status()[late]["lag"] == 0, "the state of the new table")
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=SECONDS_MAX)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    text = output.read_text()
    assert running.returncode == 0, text
    assert "stopped; the next run continues from the last finished batches" in text
    assert {each["topic"] for each in json.loads(out)} == {*topics, late}
    assert "Traceback" not in text
    assert command.ids(topics[0]) == [*range(6)]
