"""Metrics, traces and clients' metrics of a node at a real OTLP collector."""

import re
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from one_node import OneNode, ask, one_node, settings
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.patience import SECONDS_MAX

from otlp_collector import Collected, collector, metrics_in
from ottla.metadata.configs import ConfigResourceType
from ottla.observability.otlp_http import Failed, HttpTarget, post
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture(scope="module")
def collected() -> Iterator[Collected]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, collected: Collected) -> Iterator[OneNode]:
    loaded = settings(
        tmp_path_factory.mktemp("node"),
        f"ottla.otlp.endpoint={collected.url}/",
        "ottla.otlp.headers=authorization=Bearer%20token",
        "ottla.otlp.metrics.interval.ms=200",
        "ottla.otlp.traces.sample.ratio=1",
        "ottla.otlp.resource.attributes=deployment.environment=test",
        "ottla.metrics.listener=127.0.0.1:0",
    )
    collected.statuses.append(503)  # the first export is sent again
    with one_node(loaded) as running:
        yield running


def scrape(node: OneNode) -> str:
    at = node.node.metrics_addr
    assert at is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{at.port}/metrics", timeout=SECONDS_MAX
    ) as reply:
        return str(reply.read().decode())


def produce(node: OneNode, topic: str, **more: str | int) -> Producer:
    producer = Producer({"bootstrap.servers": str(node.address), "client.id": "traced"} | more)
    producer.produce(topic, b"x" * 50)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def test_metrics_of_the_node_arrive_after_a_failed_attempt(
    node: OneNode, collected: Collected
) -> None:
    produce(node, "metrics")
    collected.wait(
        lambda: "kafka_server_brokertopicmetrics_messagesin_total" in collected.metric_names(),
        "no metrics arrived",
    )
    resource = collected.resources()[-1]
    found = {pair.key: pair.value for pair in resource.resource.attributes}
    assert found["service.name"].string_value == "ottla"
    assert found["kafka.node.id"].int_value == 1
    assert found["deployment.environment"].string_value == "test"
    _, headers = collected.requests[0]
    assert headers["authorization"] == "Bearer token"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["content-encoding"] == "gzip"
    page = scrape(node)
    assert "ottla_otlp_delivered_total" in page
    assert any(
        line.startswith("ottla_otlp_retries_total") and not line.endswith(" 0")
        for line in page.splitlines()
    ), "the answer 503 was not counted"


def test_exported_metrics_are_those_of_the_page(node: OneNode, collected: Collected) -> None:
    shown = {line.split()[2] for line in scrape(node).splitlines() if line.startswith("# TYPE")} - {
        "ottla_otlp_dropped_total"
    }
    # Families whose values are not a number yet are on the page only.
    later = {name for name in shown if "commit_latency" in name}
    # Metrics of clients are forwarded as they were pushed, not a second time by these names.
    later |= {name for name in shown if name.startswith("kafka_client_")}
    collected.wait(lambda: shown - later <= collected.metric_names(), "families are missing")


def attributes_of(span: Span) -> dict[str, AnyValue]:
    return {pair.key: pair.value for pair in span.attributes}


def spans_of(collected: Collected, client_id: str) -> list[Span]:
    return [
        span
        for span in collected.spans()
        if attributes_of(span).get("messaging.client.id", AnyValue()).string_value == client_id
    ]


def test_requests_are_traced_with_their_client_size_and_times(
    node: OneNode, collected: Collected
) -> None:
    produce(node, "traced")
    collected.wait(
        lambda: (
            {"Produce", "ApiVersions", "Metadata"}
            <= {span.name for span in spans_of(collected, "traced")}
        ),
        "no spans arrived",
    )
    span = next(each for each in spans_of(collected, "traced") if each.name == "Produce")
    found = attributes_of(span)
    assert found["kafka.error_code"].int_value == 0
    assert found["kafka.request.size"].int_value > 50
    assert found["kafka.response.size"].int_value > 10
    assert found["kafka.local_time_ms"].double_value > 0
    assert span.end_time_unix_nano > span.start_time_unix_nano > 1_600_000_000 * 10**9


def test_fetch_that_waits_for_records_has_a_span_of_the_wait(
    node: OneNode, collected: Collected
) -> None:
    produce(node, "waited")
    at = {"bootstrap.servers": str(node.address), "client.id": "waits", "group.id": "g"}
    consumer = Consumer(at | {"fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition("waited", 0, 1)])
    try:
        collected.wait(
            lambda: any(
                attributes_of(span)["kafka.remote_time_ms"].double_value >= 50
                for span in spans_of(collected, "waits")
                if span.name == "Fetch"
            ),
            "no fetch waited",
        )
    finally:
        consumer.close()
    parents = {span.span_id for span in spans_of(collected, "waits") if span.name == "Fetch"}
    waits = [span for span in collected.spans() if span.name == "Fetch wait for records"]
    assert any(span.parent_span_id in parents for span in waits)


def test_part_of_the_requests_on_the_fast_path_is_traced(tmp_path: Path) -> None:
    with collector() as sampled:
        loaded = settings(
            tmp_path,
            f"ottla.otlp.traces.endpoint={sampled.url}/v1/traces",
            "ottla.otlp.traces.sample.ratio=0.5",
            "ottla.metrics.listener=127.0.0.1:0",
        )
        with one_node(loaded) as node:
            producer = Producer({"bootstrap.servers": str(node.address), "linger.ms": 0})
            for _ in range(200):
                producer.produce("sampled", b"x")
                assert producer.flush(SECONDS_MAX) == 0
            page = scrape(node)
            count = re.search(r'requests_total\{request="Produce"\} (\d+)', page)
            assert count is not None and 200 <= int(count[1]) <= 220, "each is counted once"

            def traced() -> int:
                return sum(span.name == "Produce" for span in sampled.spans())

            sampled.wait(lambda: traced() >= 40, "far fewer spans than half of the requests")
            assert traced() <= 160
            assert "ottla_otlp_delivered_total" in scrape(node)
    assert not sampled.metrics, "only traces have an endpoint"


def test_stopping_node_exports_its_last_values_and_traces(tmp_path: Path) -> None:
    with collector() as last:
        loaded = settings(
            tmp_path,
            f"ottla.otlp.endpoint={last.url}/",
            "ottla.otlp.metrics.interval.ms=86400000",
            "ottla.otlp.traces.sample.ratio=1",
        )
        with one_node(loaded) as node:
            produce(node, "last")
            assert not last.metrics, "a day has not passed"
        assert "kafka_server_brokertopicmetrics_messagesin_total" in last.metric_names()
        assert any(span.name == "Produce" for span in last.spans())


def test_span_of_a_failed_request_has_its_error(node: OneNode, collected: Collected) -> None:
    topics = [MetadataRequestTopic(name="no such topic")]
    ask(node, MetadataRequest(topics, allow_auto_topic_creation=False))
    collected.wait(
        lambda: any(span.status.message == "INVALID_TOPIC_EXCEPTION" for span in collected.spans()),
        "no span with an error",
    )


def test_metrics_of_clients_are_forwarded_with_who_pushed_them(
    node: OneNode, collected: Collected
) -> None:
    changes = [
        AlterableConfig(key, config_operation=0, value=value)
        for key, value in (("metrics", "*"), ("interval.ms", "100"), ("match", "client_id=pushes"))
    ]
    resource = AlterConfigsResource(ConfigResourceType.CLIENT_METRICS, "producers", changes)
    (answer,) = ask(node, IncrementalAlterConfigsRequest([resource])).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    producer = produce(node, "pushed", **{"client.id": "pushes"})

    def pushed() -> list[dict[str, str]]:
        return [
            {pair.key: pair.value.string_value for pair in each.resource.attributes}
            for each in collected.resources()
            if any(metric.name.startswith("org.apache.kafka.") for metric in metrics_in(each))
        ]

    collected.wait(lambda: bool(pushed()), "no metrics of a client arrived")
    assert pushed()[0]["client_id"] == "pushes"
    assert pushed()[0]["client_instance_id"]
    assert pushed()[0]["service.name"] == "ottla"
    assert "kafka_client_" in scrape(node)
    rounds = len(collected.requests)
    collected.wait(lambda: len(collected.requests) > rounds + 3, "exports ended")
    assert not any(name.startswith("kafka_client_") for name in collected.metric_names())
    producer.flush(SECONDS_MAX)


def test_export_over_tls_needs_the_certificate_of_the_collector(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with collector(server) as secure:
        untrusted = post(HttpTarget(url=f"{secure.url}/v1/metrics"), b"")
        assert isinstance(untrusted, Failed) and "CERTIFICATE_VERIFY_FAILED" in untrusted.reason
        assert not secure.requests
        loaded = settings(
            tmp_path,
            f"ottla.otlp.endpoint={secure.url}",
            f"ottla.otlp.certificate={trusted}",
            "ottla.otlp.metrics.interval.ms=100",
            "ottla.otlp.compression=none",
        )
        with one_node(loaded):
            secure.wait(lambda: bool(secure.metrics), "nothing arrived over TLS")
    assert "content-encoding" not in secure.requests[0][1]


def test_node_without_an_endpoint_exports_nothing(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, "ottla.metrics.listener=127.0.0.1:0")) as plain:
        assert "ottla_otlp" not in scrape(plain)
