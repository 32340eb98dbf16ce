"""The pytest fixtures in a project that has ottla installed."""

import inspect
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from tests.patience import SECONDS_MAX

from ottla.testing import Cluster, KafkaContainer, run_cluster
from ottla.testing.plugin import OPTIONS

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
    assert producer.flush(240) == 0
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
        timeout=SECONDS_MAX,
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


FAILING = """
import logging
import pytest


def test_of_a_thread(ottla_node, caplog):
    logging.getLogger("ottla.elsewhere").warning("passed on")
    assert [each.message for each in caplog.records] == ["passed on"]
    assert ottla_node.node_ids == []


@pytest.mark.ottla(processes=True)
def test_of_a_process(ottla_node):
    assert ottla_node.node_ids == []


def test_without_a_node():
    logging.getLogger("ottla.elsewhere").info("not shown")
    assert False


@pytest.mark.ottla(config={"num.partitons": 4})
def test_misspelt(ottla_node):
    pass
"""


def test_report_of_a_failed_test_has_the_log_of_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    done = run_pytest(tmp_path, "-q")
    assert "3 failed, 1 error" in done.stdout, done.stdout
    parts = done.stdout.split("____ test_")
    by_name = {part.split()[0]: part for part in parts[1:]}
    assert "-- ottla nodes --" in by_name["of_a_thread"]
    assert "node started node_id=1" in by_name["of_a_thread"]
    assert "-- ottla node 1 --" in by_name["of_a_process"]
    assert "node started node_id=1" in by_name["of_a_process"]
    assert "ottla node" not in by_name["without_a_node"].replace("ottla_node", "")
    assert "unknown key; did you mean num.partitions?" in done.stdout


BOTH = """
from confluent_kafka import Producer


def test_both(kafka_or_ottla):
    producer = Producer(kafka_or_ottla.client_config)
    producer.produce("t", b"x")
    assert producer.flush(240) == 0
"""


def test_fixture_of_both_brokers_skips_a_missing_kafka_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KAFKA_HOME", "OTTLA_KAFKA_JARS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "test_both.py").write_text(BOTH)
    done = run_pytest(tmp_path, "-q", "-rs")
    assert "1 passed, 1 skipped" in done.stdout, done.stdout
    assert "set KAFKA_HOME" in done.stdout or "Java is not installed" in done.stdout


@pytest.mark.jvm
def test_fixture_of_both_brokers_runs_apache_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.kafka_jars import classpath

    monkeypatch.setenv("OTTLA_KAFKA_JARS", classpath().removesuffix("/*"))
    (tmp_path / "test_both.py").write_text(BOTH)
    done = run_pytest(tmp_path, "-q", "-rs")
    assert "2 passed" in done.stdout, done.stdout


def test_container_has_the_methods_of_testcontainers() -> None:
    from confluent_kafka.admin import AdminClient

    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft()
    with pytest.raises(RuntimeError, match="not started"):
        container.get_bootstrap_server()
    container.with_env("KAFKA_NUM_PARTITIONS", "4").with_env("KAFKA_HEAP_OPTS", "-Xmx1g")
    container.with_envs(KAFKA_LISTENERS="PLAINTEXT://:9092")
    with container as kafka:
        address = f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        assert address == kafka.get_bootstrap_server()
        client = AdminClient({"bootstrap.servers": address})
        (made,) = client.create_topics([NewTopic("t")]).values()
        made.result(SECONDS_MAX)
        assert len(client.list_topics("t", timeout=SECONDS_MAX).topics["t"].partitions) == 4
    with pytest.raises(RuntimeError, match="not started"):
        container.get_bootstrap_server()


@pytest.mark.ottla(tiering=True)
def test_tiering_in_a_word_copies_sealed_segments(ottla_node: Cluster, tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    config = {
        "remote.storage.enable": "true",
        "segment.bytes": "1048576",
        "local.retention.bytes": "1",
    }
    client = AdminClient(ottla_node.client_config)
    (made,) = client.create_topics([NewTopic("t", 1, 1, config=config)]).values()
    made.result(SECONDS_MAX)
    producer = Producer({**ottla_node.client_config, "compression.type": "none"})
    for _ in range(30):
        producer.produce("t", b"x" * 100_000)
        producer.flush(SECONDS_MAX)
    copied = tmp_path / "ottla" / "tier"
    deadline = time.monotonic() + SECONDS_MAX
    while not [each for each in copied.rglob("*") if each.is_file()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_plugin_is_installed_and_loads_no_node_until_used() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "ottla"]
    assert found.value == "ottla.testing.plugin"
    code = (
        "import sys, ottla.testing.plugin\n"
        "loaded = [name for name in sys.modules if name.startswith('ottla.')]\n"
        "assert loaded == ['ottla.testing', 'ottla.testing.plugin'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


WRONG_PROJECT = """
import pytest


@pytest.mark.ottla(procesess=True)
def test_misspelt_option(ottla_node):
    pass


@pytest.mark.ottla(config={"num.partition": 5})
def test_misspelt_setting(ottla_node):
    pass


@pytest.mark.ottla(nodes=99)
def test_too_many_nodes(ottla_cluster):
    pass
"""


def test_wrong_marker_fails_with_a_sentence_and_no_frames(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(WRONG_PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=SECONDS_MAX,
    )
    assert "has no option 'procesess'; did you mean 'processes'?" in done.stdout
    assert "did you mean num.partitions" in done.stdout
    assert "99 nodes, 16 at most" in done.stdout
    assert "plugin.py" not in done.stdout and "cluster.py" not in done.stdout, done.stdout


def test_options_of_the_marker_are_those_of_a_cluster() -> None:
    assert set(OPTIONS) == set(inspect.signature(run_cluster).parameters)
