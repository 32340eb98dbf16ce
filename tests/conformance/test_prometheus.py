"""Prometheus reads a live cluster: every query of three dashboards, and our rules, have answers."""

import asyncio
import json
import math
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from benchmarks.idle import combined, wait_brokers
from benchmarks.nodes import NodeProcess
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from dashboard_queries import CLUSTER, EXPORTER, KAFKA, KRAFT, labels_of
from tests.free_ports import free_ports

pytestmark = pytest.mark.external

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
SECONDS_MAX = 90


def require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: apt-get install prometheus")
    return found


@dataclass(frozen=True)
class Prometheus:
    port: int

    def query(self, expression: str) -> list[float]:
        """Return the values of a query that are numbers."""
        text = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/query?{text}", timeout=30
        ) as reply:
            result = json.load(reply)["data"]["result"]
        values = [float(each["value"][1]) for each in result]
        return [value for value in values if not math.isnan(value)]

    def wait(self, expression: str) -> list[float]:
        """Return the values of a query once it has any; fail after `SECONDS_MAX`."""
        deadline = time.monotonic() + SECONDS_MAX
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, f"no value: {expression}"
            time.sleep(0.5)
        return found


@contextmanager
def prometheus(directory: Path, targets: dict[int, int]) -> Iterator[Prometheus]:
    """Run Prometheus, which scrapes every two seconds; ``targets`` are ports by node id."""
    (port,) = free_ports(1)
    scrapes = [
        {"targets": [f"127.0.0.1:{at}"], "labels": labels_of(node_id)}
        for node_id, at in targets.items()
    ]
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(MONITORING / "alerts.yml")],
        "scrape_configs": [{"job_name": "ottla", "static_configs": scrapes}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (directory / "prometheus.log").open("wb") as output:
        process = subprocess.Popen(
            [
                require("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_ready(port, process)
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


def _wait_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        assert process.poll() is None, "prometheus ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, "prometheus did not start"
            time.sleep(0.2)


@contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Produce to a topic, and read it with a group that commits, until the block ends."""
    at = {"bootstrap.servers": bootstrap}
    admin = AdminClient(at)
    orders = NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"})
    for created in admin.create_topics([orders]).values():
        created.result(60)
    is_over = threading.Event()

    def produce() -> None:
        producer = Producer(at)
        while not is_over.is_set():
            producer.produce("orders", b"x" * 100)
            producer.flush(10)
            is_over.wait(0.02)

    def consume() -> None:
        settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer(at | settings | {"auto.commit.interval.ms": 200})
        consumer.subscribe(["orders"])
        while not is_over.is_set():
            consumer.poll(0.1)
        consumer.close()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    require("prometheus")
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    with (
        nodes(tmp_path_factory.mktemp("nodes"), ports) as started,
        prometheus(tmp_path_factory.mktemp("prometheus"), ports) as running,
        load(addresses(started)),
    ):
        yield running


@contextmanager
def nodes(directory: Path, ports: dict[int, int]) -> Iterator[list[NodeProcess]]:
    """Run three nodes that serve /metrics on ``ports``."""
    with ExitStack() as stack:
        running = [
            replace(
                node,
                settings=f"{node.settings}\nottla.consumer.lag.interval.ms=500\n"
                f"ottla.metrics.listener=127.0.0.1:{ports[node.node_id]}\n",
            )
            for node in combined(directory, len(ports))
        ]
        for node in running:
            node.format()
            node.start()
            stack.callback(node.kill)
        asyncio.run(wait_brokers(running[0], len(running)))
        yield running


def addresses(started: list[NodeProcess]) -> str:
    return ",".join(str(node.address) for node in started)


@pytest.mark.parametrize("query", [*KAFKA, *KRAFT, *EXPORTER])
def test_query_of_a_dashboard_has_an_answer(scraped: Prometheus, query: str) -> None:
    scraped.wait(query)


def test_values_are_those_of_the_cluster(scraped: Prometheus) -> None:
    assert scraped.wait(f'count(up{{strimzi_io_cluster="{CLUSTER}"}} == 1)') == [3.0]
    assert scraped.wait("sum(kafka_controller_kafkacontroller_activecontrollercount)") == [1.0]
    assert scraped.wait('sum(kafka_topic_partitions{topic="orders"})') == [3.0]
    assert scraped.wait('sum(kafka_topic_partition_replicas{topic="orders"})') == [9.0]
    for moving in (
        'sum(irate(kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}[5m])) > 0',
        'sum(irate(kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}[5m])) > 0',
        "sum(irate(kafka_server_raftchannelmetrics_request_total[5m])) > 0",
        "sum(irate(kafka_server_raftchannelmetrics_incoming_byte_total[5m])) > 0",
        'sum(kafka_consumergroup_current_offset{consumergroup="billing"}) > 0',
    ):
        scraped.wait(moving)


def test_no_alert_fires_for_a_healthy_cluster_and_every_rule_can_be_evaluated(
    scraped: Prometheus,
) -> None:
    scraped.wait('up{job="ottla"}')
    with urllib.request.urlopen(
        f"http://127.0.0.1:{scraped.port}/api/v1/rules", timeout=30
    ) as reply:
        groups = json.load(reply)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 10
    assert [rule["name"] for rule in rules if rule.get("lastError")] == []
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert firing == []


def value(port: int, metric: str) -> float:
    """Return the value of a metric without labels on the page of a node."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.split()[0] == metric))


def test_stopped_follower_and_paused_node_change_the_gauges(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    require("prometheus")
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    orders = '{topic="orders"}'
    with (
        nodes(tmp_path_factory.mktemp("nodes"), ports) as started,
        prometheus(tmp_path_factory.mktemp("prometheus"), ports) as running,
        load(addresses(started)),
    ):
        assert running.wait(f"sum(kafka_topic_partition_in_sync_replica{orders}) == 9") == [9.0]
        assert running.wait(f"sum(kafka_cluster_partition_atminisr{orders})") == [0.0]
        running.wait("min(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent) < 1")
        running.wait("min(kafka_server_kafkaserver_linux_disk_write_bytes) > 0")

        paused, port = started[1], ports[2]
        assert paused.process is not None
        before = value(port, "ottla_event_loop_stalls_total")
        paused.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # the stall that is measured
        paused.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + SECONDS_MAX
        while value(port, "ottla_event_loop_stalls_total") == before:
            assert time.monotonic() < deadline, "the stall was not counted"
        assert value(port, "ottla_event_loop_lag_max_seconds") > 1

        running.wait(f"sum(kafka_topic_partition_in_sync_replica{orders}) == 9")
        started[2].kill()
        for changed in (
            f"sum(kafka_topic_partition_in_sync_replica{orders}) == 6",
            f"sum(kafka_cluster_partition_atminisr{orders}) == 3",
            f"sum(kafka_cluster_partition_underminisr{orders}) == 0",
            f"sum(kafka_topic_partition_under_replicated_partition{orders}) == 3",
            "sum(kafka_server_replicamanager_underreplicatedpartitions) >= 3",
            "max(kafka_controller_kafkacontroller_fencedbrokercount) == 1",
            "min(kafka_brokers) == 2",
            'ALERTS{alertname="UnderReplicated"}',
        ):
            running.wait(changed)
        started[2].start()
        running.wait(f"sum(kafka_topic_partition_in_sync_replica{orders}) == 9")
        running.wait(f"sum(kafka_cluster_partition_atminisr{orders}) == 0")


def test_alert_rules_pass_their_own_tests() -> None:
    promtool = require("promtool")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=MONITORING, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_that_fires_it() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    tests = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    fired = {
        row["alertname"] for test in tests for row in test["alert_rule_test"] if row["exp_alerts"]
    }
    assert fired == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
