"""`ottla console`, `ottla mcp`, and the console of a node that `ottla up` runs."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

from ottla.testing.cluster import Cluster, run_cluster

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_cluster(1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(SECONDS_MAX)
        yield cluster


def get(url: str) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=SECONDS_MAX) as reply:
        return json.load(reply)


def get_when_served(url: str) -> dict[str, object]:
    """Repeat a request until something listens."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return get(url)
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_console_runs_beside_a_cluster_until_it_is_stopped(node: Cluster) -> None:
    arguments = ["console", "--bootstrap", node.bootstrap, "--listen", "http://127.0.0.1:0"]
    process = subprocess.Popen([*OTTLA, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("console: http://127.0.0.1:") and "this machine only" in line
        topics = get(line.split()[1] + "/api/v1/topics")["topics"]
        assert [row["name"] for row in topics] == ["orders"]
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        if process.stderr is not None:
            process.stderr.close()


def test_console_without_login_is_not_served_to_other_machines(node: Cluster) -> None:
    arguments = ["console", "--bootstrap", node.bootstrap, "--listen", "http://0.0.0.0:0"]
    done = subprocess.run(
        [*OTTLA, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 1
    assert "has no login" in done.stderr


def test_assistants_read_topics_and_change_nothing(node: Cluster) -> None:
    calls = [
        ("initialize", {"protocolVersion": "2025-03-26"}),
        ("tools/list", {}),
        ("tools/call", {"name": "get_topics", "arguments": {"filter": "ord"}}),
        ("tools/call", {"name": "get_topics_one", "arguments": {"topic": "none"}}),
        ("tools/call", {"name": "change_topics", "arguments": {"name": "x"}}),
        ("nonsense", {}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        for number, (method, parameters) in enumerate(calls)
    ]
    lines.insert(1, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    lines.append("not JSON")
    done = subprocess.run(
        [*OTTLA, "mcp", "--bootstrap", node.bootstrap],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(replies) == len(calls) + 1
    greeting, tools, listed, missing, refused, unknown, broken = replies
    assert greeting["result"]["protocolVersion"] == "2025-03-26"
    names = {tool["name"] for tool in tools["result"]["tools"]}
    assert "get_groups" in names and not any(name.startswith("change_") for name in names)
    topics = json.loads(listed["result"]["content"][0]["text"])["topics"]
    assert [row["name"] for row in topics] == ["orders"]
    assert missing["result"]["isError"] is True
    assert "error" in refused and "error" in unknown and "error" in broken


def test_node_serves_its_console_where_it_is_set(tmp_path: Path) -> None:
    port, *_, console_port = free_ports(6)  # the controller and the metrics have the next ones
    url = f"http://127.0.0.1:{console_port}"
    arguments = ["up", "--data", str(tmp_path / "data"), "--port", str(port)]
    process = subprocess.Popen(
        [*OTTLA, *arguments, "-c", f"console.listeners={url}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready 127.0.0.1:{port}\n"
        assert get_when_served(f"{url}/api/v1")["problems"] == []
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()
