"""Apache Kafka's clients push their metrics, as its own tool tells them to (KIP-714)."""

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.free_ports import free_ports

from conftest import SECONDS_MAX, Kafka
from otlp_collector import Collected, collector, metrics_in
from ottla.testing import run_node

pytestmark = pytest.mark.jvm

SUBSCRIPTIONS = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def page_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        return str(reply.read().decode())


def series(page: str, client_id: str) -> set[str]:
    """Return the names of the metrics that a client has pushed."""
    lines = [line for line in page.splitlines() if f'client_id="{client_id}"' in line]
    return {line.split("{")[0] for line in lines if line.startswith("kafka_client_")}


@contextmanager
def running(kafka: Kafka, log: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a tool in the background; close its input at the end, and wait for it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", "-Xmx384m", "-cp", kafka.classpath, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()  # its shutdown hook closes the client
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
        process.wait()


def wait_pushed(port: int, client_id: str, process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while not series(page := page_of(port), client_id):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"nothing was pushed:\n{log.read_text()}"
        time.sleep(0.2)
    return page


def test_javas_clients_push_what_kafkas_tool_subscribes_to(kafka: Kafka, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with collector() as collected:
        config = {
            "ottla.metrics.listener": f"127.0.0.1:{port}",
            "ottla.otlp.endpoint": collected.url,
            "ottla.otlp.metrics.enable": "false",
        }
        with run_node(processes=True, config=config) as node:
            at = ("--bootstrap-server", node.bootstrap)
            _tool_manages_subscriptions(kafka, at)
            for tool, client_id, more in (
                (PRODUCER, "java-producer", ()),
                (CONSUMER, "java-consumer", ("--group", "g")),
            ):
                log = tmp_path / client_id
                said = ("--topic", "pushed", "--command-property", f"client.id={client_id}")
                with running(kafka, log, tool, *at, *said, *more) as process:
                    if tool == PRODUCER and process.stdin is not None:
                        process.stdin.write(b"one\ntwo\n")
                        process.stdin.flush()
                    page = wait_pushed(port, client_id, process, log)
                kind = client_id.removeprefix("java-")
                shown = series(page, client_id)
                assert any(name.startswith(f"kafka_client_{kind}_") for name in shown), shown
                assert 'client_software_name="apache-kafka-java"' in page
                assert "ottla_client_telemetry_failures_total 0" in page
            _forwarded(collected)


def _tool_manages_subscriptions(kafka: Kafka, at: tuple[str, ...]) -> None:
    """Create, describe, list and delete subscriptions; one for Java's clients remains."""
    for name, interval in (("java", "500"), ("other", "1000")):
        kafka.run(
            *(SUBSCRIPTIONS, *at, "--alter", "--name", name, "--interval", interval),
            *("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."),
            *("--match", "client_software_name=apache-kafka-java"),
        )
    described = kafka.run(SUBSCRIPTIONS, *at, "--describe", "--name", "java")
    assert "interval.ms=500" in described, described
    assert "client_software_name=apache-kafka-java" in described, described
    assert set(kafka.run(SUBSCRIPTIONS, *at, "--list").split()) >= {"java", "other"}
    kafka.run(SUBSCRIPTIONS, *at, "--delete", "--name", "other")
    assert kafka.run(SUBSCRIPTIONS, *at, "--list").split() == ["java"]


def _forwarded(collected: Collected) -> None:
    def clients() -> set[str]:
        return {
            pair.value.string_value
            for each in collected.resources()
            if metrics_in(each)
            for pair in each.resource.attributes
            if pair.key == "client_id"
        }

    collected.wait(lambda: {"java-producer", "java-consumer"} <= clients(), "not forwarded")
