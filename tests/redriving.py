"""Dead letters of a cluster whose brokers are killed, as ``ottla dlq`` shows and redrives them."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing.cluster import Cluster

OTTLA = (sys.executable, "-m", "ottla.cli.main")
DURABLE = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
}
"""Settings of three brokers, each of which may be killed."""


def command(cluster: Cluster, *arguments: str) -> Any:
    """Run a command; return its JSON."""
    done = CliRunner().invoke(
        app, [*arguments, "-o", "json"], env={"OTTLA_BOOTSTRAP": cluster.bootstrap}
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def leader_of(cluster: Cluster, topic: str) -> int:
    (found,) = command(cluster, "topic", "describe", topic)
    return int(found["partitions"][0]["leader"])


def set_up(cluster: Cluster, lines: str) -> None:
    """Create orders, its dead-letter topic and a target; fill orders from a file of lines."""
    command(cluster, "cluster", "features", "upgrade", "-f", "share.version=2")
    for topic in ("orders", "back", "dlq.orders"):
        command(cluster, "topic", "create", topic, "-p", "1", "-r", "3")
    enable = "errors.deadletterqueue.group.enable=true"
    command(cluster, "config", "set", "topic", "dlq.orders", enable)
    command(
        cluster, "config", "set", "group", "queue", "share.auto.offset.reset=earliest",
        "errors.deadletterqueue.topic.name=dlq.orders",
        "errors.deadletterqueue.copy.record.enable=true",
    )  # fmt: skip
    command(cluster, "produce", "orders", lines)


def check_letters(cluster: Cluster, dead: set[int], accepted: set[int]) -> list[dict[str, Any]]:
    """Check the letters of records whose value is their offset; return them."""
    letters = letters_in(cluster)
    found = origins(letters)
    assert set(found.values()) == {1}, "no letter is there twice"
    assert dead <= set(found), "none is lost"
    assert not accepted & set(found), "a confirmed record is no dead letter"
    assert all(each["payload"] == each["origin"].rpartition(" ")[2] for each in letters)
    return letters


def check_redrive(cluster: Cluster, letters: list[dict[str, Any]]) -> None:
    """Redrive letters while brokers and the command are killed: each comes back exactly once."""
    redrive_with_kills(cluster, len(letters))
    assert sorted(consumed(cluster, "back")) == sorted(each["payload"] for each in letters)


def letters_in(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the letters that wait; a command that meets a killed leader is repeated."""
    arguments = ["dlq", "show", "dlq.orders", "-n", "1000", "-o", "json"]
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": cluster.bootstrap})
        if done.exit_code == 0:
            found: list[dict[str, Any]] = json.loads(done.stdout)
            return found
        assert time.monotonic() < deadline, done.output


def origins(letters: list[dict[str, Any]]) -> Counter[int]:
    return Counter(int(each["origin"].rpartition(" ")[2]) for each in letters)


def consumed(cluster: Cluster, topic: str) -> list[str]:
    """Return the values that a reader of committed records gets."""
    arguments = ("consume", topic, "-o", "beginning", "-e", "-f", "%s\n")
    done = subprocess.run(
        [*OTTLA, *arguments, "-b", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done
    return done.stdout.split()


def redrive_with_kills(cluster: Cluster, count: int) -> None:
    """Kill the leader of the target, of the transactions, and the command itself, while it runs."""
    command_line = [*OTTLA, "dlq", "redrive", "dlq.orders", "--all", "--to", "back", "--rate", "2"]
    environment = {**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command_line, "-o", "json"], env=environment)

    def handled() -> int:
        return count - len(letters_in(cluster))

    def wait_beyond(done: int) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while handled() <= done:
            if running.poll() is not None:  # on a busy machine, while a broker started
                assert running.returncode == 0, f"the redrive failed after {done} of {count}"
                return
            assert time.monotonic() < deadline, f"the redrive stopped at {done} of {count}"

    running = begin()
    try:
        for topic in ("back", "__transaction_state"):
            wait_beyond(handled())
            leader = leader_of(cluster, topic)
            cluster.kill(leader)
            wait_beyond(handled())
            cluster.start(leader)
        running.kill()
        running.wait(SECONDS_MAX)
        command_line[command_line.index("2")] = "1000"
        running = begin()
        assert running.wait(SECONDS_MAX) == 0
    finally:
        running.kill()
        running.wait(SECONDS_MAX)
    assert handled() == count
    assert json.dumps(command(cluster, "dlq", "list")).count('"waiting": 0') == 1
