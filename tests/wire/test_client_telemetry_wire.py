"""Metrics that clients push, from a real client's push to /metrics."""

import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from one_node import OneNode, ask, one_node, settings
from tests.patience import SECONDS_MAX

from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    loaded = settings(tmp_path_factory.mktemp("node"), "ottla.metrics.listener=127.0.0.1:0")
    with one_node(loaded) as running:
        yield running


def scrape(node: OneNode) -> str:
    at = node.node.metrics_addr
    assert at is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{at.port}/metrics", timeout=SECONDS_MAX
    ) as reply:
        return str(reply.read().decode())


def subscribe(node: OneNode, name: str, **entries: str) -> None:
    changes = [
        AlterableConfig(key.replace("_", "."), config_operation=0, value=value)
        for key, value in entries.items()
    ]
    resource = AlterConfigsResource(ConfigResourceType.CLIENT_METRICS, name, changes)
    (answer,) = ask(node, IncrementalAlterConfigsRequest([resource])).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def test_metrics_of_librdkafka_show_in_metrics(node: OneNode) -> None:
    subscribe(node, "producers", metrics="*", interval_ms="100", match="client_id=watched")
    producer = Producer({"bootstrap.servers": str(node.address), "client.id": "watched"})
    deadline = time.monotonic() + SECONDS_MAX
    while "kafka_client_producer" not in (page := scrape(node)):
        assert time.monotonic() < deadline, "no metrics arrived"
        producer.produce("telemetry", b"x")
        producer.flush(SECONDS_MAX)
    line = next(each for each in page.splitlines() if each.startswith("kafka_client_producer"))
    assert 'client_id="watched"' in line
    assert 'client_software_name="confluent-kafka-python"' in line or "librdkafka" in line
    assert "ottla_client_telemetry_failures_total 0" in page
    producer.flush(SECONDS_MAX)
