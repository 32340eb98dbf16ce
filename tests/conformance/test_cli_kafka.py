"""The commands of `ottla` against Apache Kafka: most of them are not particular to Ottla."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Broker

pytestmark = pytest.mark.jvm
PROGRAM = [str(Path(sys.executable).parent / "ottla")]


@pytest.fixture
def started(broker: Broker) -> Broker:
    broker.start()
    return broker


class Ottla:
    """Runs commands, each in a process, against one broker."""

    def __init__(self, broker: Broker, home: Path) -> None:
        self.environment = {**os.environ, "OTTLA_BOOTSTRAP": broker.address, "HOME": str(home)}
        self.said = ""

    def __call__(self, *arguments: str, given: str = "", code: int = 0, **more: str) -> str:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            env={**self.environment, **more},
        )
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        self.said = done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> list[dict]:
        return json.loads(self(*arguments, "-o", "json"))

    def completed(self, words: str) -> list[str]:
        """Return what a shell offers for the last word of a command line."""
        shell = {
            "_OTTLA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - (not words.endswith(" "))),
        }
        return self(**shell).split()


@pytest.fixture
def ottla(started: Broker, tmp_path: Path) -> Ottla:
    found = Ottla(started, tmp_path)
    found("topic", "create", "orders", "-p", "2", "-c", "retention.ms=86400000")
    found("produce", "orders", given="".join(f"order {each}\n" for each in range(10)))
    return found


def test_commands_work_against_apache_kafka(ottla: Ottla) -> None:
    check_reading(ottla)
    check_names(ottla)
    check_tables(ottla)


def check_reading(ottla: Ottla) -> None:
    """Consume in a group, by pattern, again, and after a reset."""
    expected = sorted(f"order {each}" for each in range(10))
    assert sorted(ottla("consume", "orders", "-g", "readers", "-e").splitlines()) == expected
    assert ottla("consume", "orders", "-g", "readers", "-e") == "", "all was committed"
    assert sum(row["lag"] for row in ottla.json("group", "lag", "readers")) == 0
    assert sorted(ottla("consume", "^ord.*", "-g", "by-pattern", "-e").splitlines()) == expected
    assert "readers" in ottla("group", "explain", "readers")
    ottla("group", "reset-offsets", "readers", "--all-topics", "--to-earliest", "--execute")
    assert ottla.said.startswith("readers: 2 partitions set: ") and "by 10 offsets" in ottla.said
    assert len(ottla("consume", "orders", "-g", "readers", "-c", "4").splitlines()) == 4


def check_names(ottla: Ottla) -> None:
    """Complete names, and suggest those of misspelt ones."""
    assert ottla.completed("ottla topic describe ord") == ["orders"]
    assert ottla.completed("ottla group describe read") == ["readers"]
    assert "did you mean 'orders'?" in ottla("topic", "describe", "order", code=1)
    assert "did you mean 'readers'?" in ottla("group", "describe", "reader", code=1)
    said = ottla("topic", "create", "t", "-c", "retntion.ms=1", "-o", "json", code=1)
    found = json.loads(said)
    assert "did you mean 'retention.ms'" in found["error"], found
    assert found["kafka_error"] == "INVALID_CONFIG"
    said = ottla("config", "set", "group", "g", "consumer.sesion.timeout.ms=1", code=1)
    assert "did you mean 'consumer.session.timeout.ms'" in said
    said = ottla("config", "set", "client-metrics", "m", "intrval.ms=1", code=1)
    assert "did you mean 'interval.ms'" in said


def check_tables(ottla: Ottla) -> None:
    """Show the cluster, live and once."""
    view = json.loads(ottla("top", "-i", "0.5", "-c", "1", "-o", "json"))
    assert view["partitions"] == 2 and view["under_replicated"] == 0
    assert {row["group"] for row in view["groups"]} == {"readers", "by-pattern"}
    assert ottla.json("cluster", "info")["topics"] == 1  # type: ignore[call-overload]
    assert ottla("cluster", "health") == ""
    (row,) = ottla.json("logdir", "list")
    assert row["size"] > 0 and row["state"] == "online"
    assert "iB" in ottla("logdir", "list")
    assert ottla.json("topic", "describe", "orders")[0]["configs"] == {"retention.ms": "86400000"}
