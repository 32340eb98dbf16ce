"""OTLP exports: the encoding, read by OpenTelemetry's own classes; sampling; the queue."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from tests.patience import SECONDS_MAX

from ottla.config.loading import load
from ottla.config.otel_environment import from_otel_environment
from ottla.config.otlp_headers import BadOtlpSetting, check_otlp_url, parse_headers
from ottla.config.problems import ConfigError
from ottla.observability.exposition import Family, Kind, Sample, counter, gauge, label_text
from ottla.observability.otlp_encoding import (
    POINTS_PER_PIECE,
    RESOURCES_MAX,
    MetricTimes,
    metric_pieces,
    request_of,
    scope_of,
    span_piece,
    with_attributes,
)
from ottla.observability.otlp_http import Delivered, Failed, Outcome, outcome_of
from ottla.observability.otlp_outbox import ATTEMPTS_MAX, QUEUE_BYTES_MAX, Export, Outbox
from ottla.observability.otlp_points import BadMetrics
from ottla.observability.request_traces import (
    TRACES_MAX,
    Finished,
    RequestTrace,
    RequestTracer,
    spans_of,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker

TIMES = MetricTimes(1_000_000_000, 2_000_000_000)
NODE = (("service.name", "ottla"), ("kafka.node.id", 7))
MINIMAL = (
    "process.roles=broker,controller\nnode.id=1\n"
    "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs=/tmp/d\n"
)


def metrics_of(*families: Family) -> list[Metric]:
    pieces = list(metric_pieces(families, TIMES))
    request = ExportMetricsServiceRequest()
    request.ParseFromString(request_of(NODE, scope_of("ottla", "1"), pieces))
    (resource,) = request.resource_metrics
    found = {pair.key: pair.value for pair in resource.resource.attributes}
    assert found["service.name"].string_value == "ottla"
    assert found["kafka.node.id"].int_value == 7
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "ottla" and scope.scope.version == "1"
    return list(scope.metrics)


# -- metrics -------------------------------------------------------------------------


def test_gauge_keeps_name_help_labels_value_and_time() -> None:
    (found,) = metrics_of(gauge("lag", "How far.", 1.5, (("topic", "größe"), ("p", "0"))))
    assert (found.name, found.description) == ("lag", "How far.")
    (point,) = found.gauge.data_points
    assert [(p.key, p.value.string_value) for p in point.attributes] == [
        ("topic", "größe"),
        ("p", "0"),
    ]
    assert point.as_double == 1.5
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1_000_000_000, 2_000_000_000)


def test_counter_is_a_cumulative_monotonic_sum() -> None:
    (found,) = metrics_of(counter("requests_total", "Requests.", 3))
    assert found.sum.is_monotonic
    assert found.sum.aggregation_temporality == AggregationTemporality.Value(
        "AGGREGATION_TEMPORALITY_CUMULATIVE"
    )
    assert found.sum.data_points[0].as_double == 3.0


def test_summary_joins_quantiles_sum_and_count_of_the_same_labels() -> None:
    def of(request: str) -> tuple[Sample, ...]:
        labels = (("request", request),)
        return (
            Sample((*labels, ("quantile", "0.5")), 1.0),
            Sample((*labels, ("quantile", "0.99")), math.nan),
            Sample(labels, 12.0, "_sum"),
            Sample(labels, 4, "_count"),
        )

    (found,) = metrics_of(Family("ms", Kind.SUMMARY, "Times.", (*of("Fetch"), *of("Produce"))))
    first, second = found.summary.data_points
    assert second.attributes[0].value.string_value == "Produce"
    assert (first.count, first.sum) == (4, 12.0)
    assert [(each.quantile, each.value) for each in first.quantile_values] == [(0.5, 1.0)]


def test_labels_as_text_are_read_back() -> None:
    text = label_text((("topic", 'a"b\\c\nd'), ("partition", "3")))
    (found,) = metrics_of(Family("size", Kind.GAUGE, "", iter([Sample(text, 9)])))
    (point,) = found.gauge.data_points
    pairs = [(p.key, p.value.string_value) for p in point.attributes]
    assert pairs == [("topic", 'a"b\\c\nd'), ("partition", "3")]


def test_large_family_is_split_and_values_that_are_no_number_are_left_out() -> None:
    count = 2 * POINTS_PER_PIECE + 1
    samples = [Sample((("p", str(at)),), at) for at in range(count)] + [Sample((), math.nan)]
    found = metrics_of(Family("many", Kind.GAUGE, "", samples))
    assert [len(each.gauge.data_points) for each in found] == [500, 500, 1]
    values = [point.as_double for each in found for point in each.gauge.data_points]
    assert values == list(range(count))


# -- metrics of clients --------------------------------------------------------------


def test_attributes_are_added_to_each_resource_of_pushed_metrics() -> None:
    pushed = ExportMetricsServiceRequest()
    for name in ("one", "two"):
        resource = pushed.resource_metrics.add()
        resource.resource.attributes.add(key="client_rack").value.string_value = "r1"
        metric = resource.scope_metrics.add().metrics.add(name=name)
        metric.gauge.data_points.add(as_int=5)
    pushed.resource_metrics.add().scope_metrics.add()  # without a resource
    found = ExportMetricsServiceRequest()
    found.ParseFromString(with_attributes(pushed.SerializeToString(), [("client_id", "c")]))
    attributes = [
        [pair.key for pair in each.resource.attributes] for each in found.resource_metrics
    ]
    assert attributes == [["client_rack", "client_id"]] * 2 + [["client_id"]]
    names = [each.scope_metrics[0].metrics[0].name for each in list(found.resource_metrics)[:2]]
    assert names == ["one", "two"]


@pytest.mark.parametrize(
    "data", [b"\x0a\x00" * (RESOURCES_MAX + 1), b"\x0a\xc0\x96\xb1\x02" + b"\x12\x00" * 2_500_000]
)
def test_push_with_very_many_parts_is_not_forwarded(data: bytes) -> None:
    with pytest.raises(BadMetrics):
        with_attributes(data, [("client_id", "c")])


@pytest.mark.parametrize("data", [b"\x0a\x05abc", b"\x08\x01", b"\x12\x00", b"\x0a\x02\x08\x01"])
def test_pushed_bytes_that_are_no_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(BadMetrics):
        with_attributes(data, [("client_id", "c")])


# -- spans ---------------------------------------------------------------------------


def trace(**changes: Any) -> RequestTrace:
    values: dict[str, Any] = {
        "key": ApiKey.PRODUCE,
        "version": 12,
        "correlation_id": 4,
        "client_id": "billing",
        "principal": "User:alice",
        "listener": "PLAINTEXT",
        "peer": Address("10.0.0.1", 4711),
        "request_bytes": 100,
        "received_s": 10.0,
        "began_s": 10.001,
        "called_s": 10.003,
        "replied_s": 10.010,
        "ended_s": 10.011,
        "response_bytes": 50,
    }
    return RequestTrace(**values | changes)


def spans(finished: Finished) -> list[Any]:
    request = ExportTraceServiceRequest()
    pieces = [span_piece(span) for span in spans_of(finished, SystemRandom())]
    request.ParseFromString(request_of(NODE, scope_of("ottla", "1"), pieces))
    return list(request.resource_spans[0].scope_spans[0].spans)


def test_produce_has_a_span_with_its_times_and_one_of_its_replication() -> None:
    request, wait = spans(Finished(trace(), Millis(1_000_000)))
    assert (request.name, request.kind, len(request.trace_id)) == ("Produce", 2, 16)
    assert len(request.span_id) == 8 and not request.parent_span_id
    assert request.end_time_unix_nano == 1_000_000 * 1_000_000
    assert request.end_time_unix_nano - request.start_time_unix_nano == pytest.approx(11e6, abs=10)
    found = {pair.key: pair.value for pair in request.attributes}
    assert found["messaging.client.id"].string_value == "billing"
    assert found["user.name"].string_value == "alice"
    assert (found["kafka.api.key"].int_value, found["kafka.api.version"].int_value) == (0, 12)
    assert (found["kafka.request.size"].int_value, found["kafka.response.size"].int_value) == (
        100,
        50,
    )
    times = [
        found[f"kafka.{name}_time_ms"].double_value
        for name in ("queue", "local", "remote", "response")
    ]
    assert times == pytest.approx([1, 2, 7, 1])
    assert (wait.name, wait.parent_span_id, wait.trace_id) == (
        "Produce replicate",
        request.span_id,
        request.trace_id,
    )
    assert wait.end_time_unix_nano - wait.start_time_unix_nano == pytest.approx(7e6, abs=10)
    assert request.status.code == 0


def test_failed_request_has_an_error_status_and_its_code() -> None:
    failed = trace(replied_s=10.003, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (request,) = spans(Finished(failed, Millis(5_000_000)))
    assert request.status.code == 2
    assert request.status.message == "NOT_LEADER_OR_FOLLOWER"
    found = {pair.key: pair.value for pair in request.attributes}
    assert found["kafka.error_code"].int_value == 6


# -- sampling ------------------------------------------------------------------------


def tracer(ratio: float) -> RequestTracer:
    return RequestTracer(ratio, SystemRandom(), lambda: Millis(0))


def test_ratio_of_one_samples_every_request() -> None:
    found = tracer(1.0)
    assert all(found.is_due() for _ in range(100))


def test_ratio_is_kept_on_average() -> None:
    found = tracer(0.05)
    sampled = sum(found.is_due() for _ in range(200_000))
    assert 9_000 < sampled < 11_000  # ten standard deviations


def test_traces_beyond_the_bound_are_dropped_and_counted() -> None:
    found = tracer(1.0)
    for _ in range(TRACES_MAX + 3):
        found.finish(trace())
    assert found.dropped == 3
    assert len(found.take(TRACES_MAX + 10)) == TRACES_MAX
    assert found.take(1) == []


# -- the queue -----------------------------------------------------------------------


class Collector:
    """Answers with the given outcomes, then accepts."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.received: list[bytes] = []

    def post(self, body: bytes) -> Outcome:
        self.received.append(body)
        return self._outcomes.pop(0) if self._outcomes else Delivered()


def outbox(collector: Collector) -> Outbox:
    return Outbox("there", collector.post, InlineWorker(), SystemRandom(), backoff_s_min=0.0)


def until(box: Outbox, condition: Callable[[], bool]) -> None:
    async def both() -> None:
        running = asyncio.ensure_future(box.run())
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(both())


def test_export_is_sent_again_after_a_failure_that_may_pass() -> None:
    collector = Collector(Failed("busy", is_retryable=True), Failed("busy", is_retryable=True))
    box = outbox(collector)
    box.offer(Export("metrics", b"a"))
    box.offer(Export("metrics", b"b"))
    counts = box.of("metrics")
    until(box, lambda: counts.delivered == 2)
    assert collector.received == [b"a", b"a", b"a", b"b"]
    assert (counts.retries, counts.dropped, box.bytes) == (2, 0, 0)


def test_refused_export_is_dropped_and_the_next_one_sent() -> None:
    collector = Collector(Failed("bad", is_retryable=False))
    box = outbox(collector)
    box.offer(Export("traces", b"a"))
    box.offer(Export("traces", b"b"))
    counts = box.of("traces")
    until(box, lambda: counts.delivered == 1)
    assert collector.received == [b"a", b"b"]
    assert (counts.retries, counts.dropped) == (0, 1)


def test_export_is_given_up_after_its_attempts() -> None:
    failed = [Failed("away", is_retryable=True)] * ATTEMPTS_MAX
    box = outbox(Collector(*failed))
    box.offer(Export("metrics", b"a"))
    counts = box.of("metrics")
    until(box, lambda: counts.dropped == 1)
    assert counts.retries == ATTEMPTS_MAX - 1


def test_flush_sends_each_export_once_and_stops_at_a_failure() -> None:
    collector = Collector(Delivered(), Failed("away", is_retryable=True))
    box = outbox(collector)
    for body in (b"a", b"b", b"c"):
        box.offer(Export("metrics", body))
    asyncio.run(box.flush())
    assert collector.received == [b"a", b"b"]
    assert (box.of("metrics").delivered, box.of("metrics").dropped) == (1, 2)
    assert box.bytes == 0


def test_full_queue_drops_the_newest_export() -> None:
    box = outbox(Collector())
    half = bytes(QUEUE_BYTES_MAX // 2)
    for _ in range(3):
        box.offer(Export("metrics", half))
    assert box.of("metrics").dropped == 1
    assert box.bytes == QUEUE_BYTES_MAX
    assert box.has_queued("metrics") and not box.has_queued("traces")


@pytest.mark.parametrize(
    ("status", "retry_after", "outcome"),
    [
        (200, None, Delivered()),
        (202, None, Delivered()),
        (503, "7", Failed("the collector answered 503", is_retryable=True, retry_after_s=7.0)),
        (429, "99999", Failed("the collector answered 429", True, retry_after_s=300.0)),
        (502, "Wed, 21 Oct 2026", Failed("the collector answered 502", is_retryable=True)),
        (400, None, Failed("the collector answered 400", is_retryable=False)),
        (401, None, Failed("the collector answered 401", is_retryable=False)),
        (301, None, Failed("the collector answered 301", is_retryable=False)),
    ],
)
def test_answer_of_a_collector_says_whether_to_send_again(
    status: int, retry_after: str | None, outcome: Outcome
) -> None:
    assert outcome_of(status, retry_after) == outcome


# -- settings ------------------------------------------------------------------------


def test_headers_are_percent_decoded() -> None:
    assert parse_headers("authorization=Bearer%20x%2C, x-tenant = a=b ,") == (
        ("authorization", "Bearer x,"),
        ("x-tenant", "a=b"),
    )


@pytest.mark.parametrize(
    "text", ["secret", "=secret", "a b=secret", "k=secret%0d%0aX", "host=secret"]
)
def test_bad_headers_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(BadOtlpSetting) as refused:
        parse_headers(text)
    assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError) as problem:
        load(f"{MINIMAL}ottla.otlp.headers={text}")
    assert "secret" not in str(problem.value) and "ottla.otlp.headers" in str(problem.value)


@pytest.mark.parametrize(
    "url", ["collector:4317", "ftp://host", "http://", "http://u:p@host", "http://host:99999"]
)
def test_url_that_cannot_be_posted_to_is_refused(url: str) -> None:
    with pytest.raises(BadOtlpSetting):
        check_otlp_url(url)


def test_variables_of_opentelemetry_are_settings_below_all_others() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://from-variable:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "k=v",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
        "OTEL_METRIC_EXPORT_INTERVAL": "5000",
    }
    found = load(MINIMAL, environment).broker
    assert found.ottla_otlp_endpoint == "http://from-variable:4318"
    assert found.ottla_otlp_traces_sample_ratio == 0.25
    assert found.ottla_otlp_metrics_interval_ms == 5000
    assert found.ottla_otlp_headers is not None and found.ottla_otlp_headers.reveal() == "k=v"
    found = load(f"{MINIMAL}ottla.otlp.endpoint=http://from-file:4318", environment).broker
    assert found.ottla_otlp_endpoint == "http://from-file:4318"
    assert load(MINIMAL).broker.ottla_otlp_endpoint is None
    assert from_otel_environment(environment | {"OTEL_SDK_DISABLED": "true"}) == []


@pytest.mark.parametrize(
    ("variables", "ratio"),
    [
        ({}, None),
        ({"OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, "1"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "0"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, "1"),
        ({"OTEL_TRACES_SAMPLER_ARG": "0.5"}, "0.5"),
        ({"OTEL_TRACES_SAMPLER_ARG": "0.5", "OTEL_TRACES_EXPORTER": "none"}, "0"),
    ],
)
def test_sampler_of_opentelemetry_sets_the_ratio(
    variables: dict[str, str], ratio: str | None
) -> None:
    found = [each.value for each in from_otel_environment(variables)]
    assert found == ([] if ratio is None else [ratio])


def test_protocol_that_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="http/protobuf"):
        load(MINIMAL, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
