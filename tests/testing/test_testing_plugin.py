"""The pytest fixtures in a project that has ottla installed."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

PROJECT = """
import socket
import pytest

SEEN = []


def is_served(cluster, node_id):
    host, port = cluster.address(node_id).split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_node(ottla_node):
    assert ottla_node.node_ids == [1] and is_served(ottla_node, 1)
    SEEN.append(ottla_node.cluster_id)


@pytest.mark.ottla(config={"num.partitions": 5})
def test_another_node(ottla_node):
    settings = ottla_node.data(1).parent / "server.properties"
    assert "num.partitions=5" in settings.read_text()
    SEEN.append(ottla_node.cluster_id)


@pytest.mark.ottla(2, processes=True)
def test_a_cluster(ottla_cluster):
    assert ottla_cluster.node_ids == [1, 2]
    ottla_cluster.kill(2)
    assert is_served(ottla_cluster, 1) and not is_served(ottla_cluster, 2)


@pytest.mark.ottla(security="sasl_ssl")
def test_a_secure_node(ottla_node):
    from confluent_kafka import Consumer, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    config = ottla_node.client_config
    assert config["security.protocol"] == "SASL_SSL" and config["sasl.username"]
    producer = Producer({**config, "acks": "all"})
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.poll(30).value() == b"x"
    consumer.close()
    wrong = AdminClient({**config, "sasl.password": "wrong", "log_level": 0})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2)


def test_the_shared_node(ottla_shared_node):
    SEEN.append(ottla_shared_node.cluster_id)


def test_the_same_shared_node(ottla_shared_node):
    assert ottla_shared_node.cluster_id == SEEN[-1]
    assert len(set(SEEN)) == len(SEEN) == 3
"""


def run_pytest(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--strict-markers", "-W", "error", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_fixtures_are_available_in_another_project(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(PROJECT)
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_wrong_marker_fails_only_its_own_test(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.ottla(1, 2)\ndef test_wrong(ottla_cluster):\n    pass\n\n"
        "def test_right():\n    pass\n"
    )
    done = run_pytest(tmp_path, "-q")
    assert "1 passed, 1 error" in done.stdout and "one positional argument" in done.stdout


def test_plugin_is_installed_and_loads_no_node_until_used() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "ottla"]
    assert found.value == "ottla.testing.plugin"
    code = (
        "import sys, ottla.testing.plugin\n"
        "loaded = [name for name in sys.modules if name.startswith('ottla.')]\n"
        "assert loaded == ['ottla.testing', 'ottla.testing.plugin'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
