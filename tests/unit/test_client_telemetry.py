"""Client telemetry (KIP-714): subscriptions, the pace of pushes, and what is shown of them."""

import struct

import pytest

from ottla.observability.client_metrics import (
    SERIES_BYTES_MAX,
    SERIES_OF_CLIENT_MAX,
    ClientMetrics,
)
from ottla.observability.client_telemetry import (
    INSTANCES_MAX,
    SILENT_MS_MIN,
    ClientTelemetry,
    Connection,
    Push,
    Subscribed,
)
from ottla.observability.exposition import Registry
from ottla.observability.otlp_points import BadMetrics, Point, PointKind, parse_points
from ottla.observability.telemetry_subscriptions import (
    Selection,
    Subscription,
    SubscriptionTable,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address

HERE = Connection("PLAINTEXT", Address("10.0.0.1", 4000))
JAVA = {"client_software_name": "apache-kafka-java", "client_id": "billing"}
RDKAFKA = {"client_software_name": "librdkafka", "client_id": "shop"}
ONE, TWO = Uuid(b"a" * 15 + b"b"), Uuid(b"b" * 15 + b"d")
INTERVAL_MS = 1_000


def table(*subscriptions: Subscription) -> SubscriptionTable:
    return SubscriptionTable(subscriptions)


def telemetry(*subscriptions: Subscription) -> ClientTelemetry:
    ids = iter([Uuid(bytes([number] * 16)) for number in range(100, 200)])
    found = ClientTelemetry(100, lambda: next(ids))
    found.subscribe(table(*(subscriptions or (Subscription("all", ("*",), INTERVAL_MS),))))
    return found


def subscribed(found: Subscribed | ErrorCode) -> Subscribed:
    assert isinstance(found, Subscribed), found
    return found


# -- subscriptions -------------------------------------------------------------------


def test_client_gets_the_metrics_of_all_matching_subscriptions_at_the_shortest_interval() -> None:
    rows = table(
        Subscription("a", ("b.", "a."), 5_000, ("client_software_name=.*java",)),
        Subscription("b", ("c.",), 2_000, ("client_id=bill.*", "client_software_name=apache.*")),
        Subscription("c", ("d.",), 100, ("client_id=shop",)),
    )
    assert rows.select(JAVA) == Selection(("a.", "b.", "c."), 2_000)


def test_star_replaces_all_other_metrics() -> None:
    rows = table(Subscription("a", ("a.",), 5_000), Subscription("b", ("*",), 9_000))
    assert rows.select(JAVA) == Selection(("*",), 5_000)


def test_expression_matches_the_whole_property_and_an_absent_property_never() -> None:
    assert table(Subscription("a", ("*",), 1, ("client_id=bill",))).select(JAVA) == Selection()
    rows = table(Subscription("a", ("*",), 1, ("client_source_port=.*",)))
    assert rows.select(JAVA) == Selection()


def test_expression_that_re2_cannot_compile_matches_no_client() -> None:
    rows = table(Subscription("a", ("*",), 1, ("client_id=(?=x)billing",)))
    assert rows.select(JAVA) == Selection()


def test_subscription_id_depends_on_metrics_interval_and_instance() -> None:
    ids = {
        Selection(metrics, interval).subscription_id(instance)
        for metrics in ((), ("a.",))
        for interval in (100, 200)
        for instance in (ONE, TWO)
    }
    assert len(ids) == 8
    assert all(-(2**31) <= each < 2**31 for each in ids)


# -- the pace of requests ------------------------------------------------------------


def test_new_client_gets_an_instance_id_that_is_not_reserved() -> None:
    ids = iter([ZERO_UUID, Uuid((1).to_bytes(16, "big")), ONE])
    found = ClientTelemetry(100, lambda: next(ids))
    assert subscribed(found.get(ZERO_UUID, JAVA, HERE, 0)).instance == ONE


def test_second_get_within_the_interval_is_throttled_unless_the_subscription_changed() -> None:
    clients = telemetry()
    subscribed(clients.get(ONE, JAVA, HERE, 0))
    assert clients.get(ONE, JAVA, HERE, INTERVAL_MS - 1) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clients.subscribe(table(Subscription("new", ("x.",), INTERVAL_MS)))
    changed = subscribed(clients.get(ONE, JAVA, HERE, INTERVAL_MS - 1))
    assert changed.selection.metrics == ("x.",)


def push(got: Subscribed, **changes: object) -> Push:
    values = {"codec": 0, "size": 10, "is_terminating": False} | changes
    values = {"instance": got.instance, "subscription_id": got.subscription_id} | values
    return Push(**values)  # type: ignore[arg-type]


def test_first_push_is_accepted_at_any_time_and_the_next_after_the_interval() -> None:
    clients = telemetry()
    got = subscribed(clients.get(ONE, JAVA, HERE, 1))
    assert clients.push(push(got), JAVA, HERE, 2) is ErrorCode.NONE
    early = clients.push(push(got), JAVA, HERE, 1 + INTERVAL_MS)
    assert early is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert clients.push(push(got), JAVA, HERE, 2 + INTERVAL_MS) is ErrorCode.NONE
    assert clients.throttled == 1


def test_terminating_push_is_accepted_early_and_is_the_last() -> None:
    clients = telemetry()
    got = subscribed(clients.get(ONE, JAVA, HERE, 1))
    assert clients.push(push(got), JAVA, HERE, 2) is ErrorCode.NONE
    assert clients.push(push(got, is_terminating=True), JAVA, HERE, 3) is ErrorCode.NONE
    after = clients.push(push(got, is_terminating=True), JAVA, HERE, 9_999)
    assert after is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"instance": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_push_is_rejected_with_the_reason(changes: dict[str, object], code: ErrorCode) -> None:
    clients = telemetry()
    got = subscribed(clients.get(ONE, JAVA, HERE, 0))
    assert clients.push(push(got, **changes), JAVA, HERE, 1) is code


def test_client_with_an_unknown_subscription_may_ask_again_at_once() -> None:
    clients = telemetry()
    got = subscribed(clients.get(ONE, JAVA, HERE, 0))
    clients.push(push(got, subscription_id=5), JAVA, HERE, 1)
    assert subscribed(clients.get(ONE, JAVA, HERE, 2)) == got
    assert clients.get(ONE, JAVA, HERE, 3) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_instance_is_forgotten_with_its_connection() -> None:
    clients = telemetry()
    subscribed(clients.get(ONE, JAVA, HERE, 0))
    clients.connection_closed(HERE)
    assert len(clients) == 0
    subscribed(clients.get(ONE, JAVA, HERE, 1))


def test_instance_that_moved_to_another_connection_survives_the_first() -> None:
    clients = telemetry()
    subscribed(clients.get(ONE, JAVA, HERE, 0))
    clients.get(ONE, JAVA, Connection("PLAINTEXT", Address("10.0.0.1", 4001)), 1)
    clients.connection_closed(HERE)
    assert len(clients) == 1


def test_silent_instances_are_evicted_after_three_intervals_and_ten_minutes() -> None:
    slow = Subscription("slow", ("*",), 300_000, ("client_id=shop",))
    clients = telemetry(slow, Subscription("fast", ("*",), 100, ("client_id=billing",)))
    subscribed(clients.get(ONE, JAVA, HERE, 0))
    there = Connection("PLAINTEXT", Address("10.0.0.2", 1))
    subscribed(clients.get(TWO, RDKAFKA, there, 0))
    assert clients.evict(SILENT_MS_MIN - 1) == []
    assert clients.evict(SILENT_MS_MIN) == [ONE]
    assert clients.evict(899_999) == []
    assert clients.evict(900_000) == [TWO]


def test_instances_are_bounded_and_the_least_recently_used_goes_first() -> None:
    clients = telemetry()
    for number in range(INSTANCES_MAX + 1):
        peer = Connection("PLAINTEXT", Address("10.0.0.1", number))
        clients.get(Uuid(number.to_bytes(16, "little")[::-1]), {}, peer, 0) if number else None
    clients.get(ONE, JAVA, HERE, 1)
    assert len(clients) == INSTANCES_MAX
    assert isinstance(clients.get(ONE, JAVA, HERE, 2), ErrorCode), "the newest was evicted"


# -- OTLP ----------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def label(key: str, value: str) -> bytes:
    return field(1, key.encode()) + field(2, field(1, value.encode()))


def number_point(value: float | int, labels: bytes = b"") -> bytes:
    if isinstance(value, int):
        return labels + varint(6 << 3 | 1) + struct.pack("<q", value)
    return labels + varint(4 << 3 | 1) + struct.pack("<d", value)


def metrics_data(*metrics: bytes) -> bytes:
    return field(1, field(1, b"") + field(2, b"".join(field(2, metric) for metric in metrics)))


def sum_metric(name: str, value: int, temporality: int, *, is_monotonic: bool = True) -> bytes:
    body = field(1, number_point(value, field(7, label("topic", "t"))))
    body += varint(2 << 3) + varint(temporality) + varint(3 << 3) + varint(int(is_monotonic))
    return field(1, name.encode()) + field(7, body)


def gauge_metric(name: str, value: float) -> bytes:
    return field(1, name.encode()) + field(3, b"ms") + field(5, field(1, number_point(value)))


def test_points_of_every_kind_are_parsed() -> None:
    histogram = (
        field(
            1,
            varint(4 << 3 | 1) + struct.pack("<q", 3) + varint(5 << 3 | 1) + struct.pack("<d", 1.5),
        )
        + varint(2 << 3)
        + varint(1)
    )
    data = metrics_data(
        gauge_metric("g", 2.5),
        sum_metric("d", 7, 1),
        sum_metric("t", -8, 2),
        sum_metric("u", 9, 2, is_monotonic=False),
        field(1, b"h") + field(9, histogram),
    )
    on_topic = (("topic", "t"),)
    assert parse_points(data, 100) == [
        Point("g", PointKind.GAUGE, (), 2.5),
        Point("d", PointKind.DELTA, on_topic, 7),
        Point("t", PointKind.TOTAL, on_topic, -8),
        Point("u", PointKind.GAUGE, on_topic, 9),
        Point("h_count", PointKind.DELTA, (), 3),
        Point("h_sum", PointKind.DELTA, (), 1.5),
    ]
    assert len(parse_points(data, 2)) == 2


def test_truncated_metrics_are_rejected_and_never_read_past_their_end() -> None:
    data = metrics_data(gauge_metric("gauge", 2.5), sum_metric("delta", 7, 1))
    for end in range(1, len(data)):
        with pytest.raises(BadMetrics):
            parse_points(data[:end], 100)


@pytest.mark.parametrize(
    "data", [b"\xff" * 11, b"\x0b", b"\x0a\xff\xff\xff\xff\x7f", metrics_data(field(1, b"\xff"))]
)
def test_hostile_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(BadMetrics):
        parse_points(data, 100)


# -- series --------------------------------------------------------------------------

LABELS = {"client_id": "billing", "user": "ANONYMOUS"}


def shown(metrics: ClientMetrics) -> str:
    return Registry([metrics.collect]).render().decode()


def test_deltas_are_added_up_and_gauges_replaced() -> None:
    metrics = ClientMetrics()
    delta = Point("org.apache.kafka.producer.record.sent", PointKind.DELTA, (("topic", "t"),), 2)
    gauge = Point("org.apache.kafka.producer.queue.time.avg", PointKind.GAUGE, (), 5.5)
    for _ in range(2):
        metrics.record(ONE, LABELS, [delta, gauge], 0, 1_000)
    at = 'client_id="billing",user="ANONYMOUS"'
    page = shown(metrics)
    assert f'kafka_client_producer_record_sent_total{{{at},topic="t"}} 4\n' in page
    assert f"kafka_client_producer_queue_time_avg{{{at}}} 5.5\n" in page


def test_client_cannot_pose_as_the_broker_or_as_another_client() -> None:
    metrics = ClientMetrics()
    evil = Point('kafka_server_x"} 1\n', PointKind.GAUGE, (("client_id", "root"), ("__n", "v")), 1)
    metrics.record(ONE, LABELS, [evil], 0, 1_000)
    line = next(each for each in shown(metrics).splitlines() if each.startswith("kafka_client"))
    assert line.startswith("kafka_client_kafka_server_x___1_{")
    assert 'client_id="billing"' in line
    assert "root" not in line
    assert 'x___n="v"' in line


def test_series_of_a_client_are_bounded_and_conflicting_types_dropped() -> None:
    metrics = ClientMetrics()
    points = [
        Point("m", PointKind.GAUGE, (("n", str(number)),), number)
        for number in range(SERIES_OF_CLIENT_MAX + 5)
    ]
    metrics.record(ONE, LABELS, points, 0, 1_000)
    assert metrics.dropped == 5
    metrics.record(TWO, LABELS, [Point("m_total", PointKind.GAUGE, (), 1)], 0, 1_000)
    metrics.record(TWO, LABELS, [Point("m", PointKind.DELTA, (), 1)], 0, 1_000)
    assert metrics.dropped == 6


def test_series_of_a_silent_client_are_removed() -> None:
    metrics = ClientMetrics()
    metrics.record(ONE, LABELS, [Point("m", PointKind.GAUGE, (), 1)], 0, 1_000)
    metrics.evict(999)
    assert "kafka_client_m" in shown(metrics)
    metrics.evict(1_000)
    assert "kafka_client_m" not in shown(metrics)


def test_text_of_all_series_is_bounded_and_freed_with_its_client() -> None:
    metrics = ClientMetrics()
    labels = tuple((f"{number}" + "l" * 190, "v" * 200) for number in range(10))

    def push(number: int) -> int:
        """Return how many of a client's series were kept."""
        before = metrics.dropped
        points = [
            Point(f"m{each % 100}", PointKind.GAUGE, (*labels[:9], ("n", f"{each}")), 1)
            for each in range(1000)
        ]
        metrics.record(Uuid(bytes([number]) * 16), LABELS, points, number * 100, 1_000)
        return 1000 - (metrics.dropped - before)

    kept = sum(push(number) for number in range(20))
    assert kept * 3_500 <= SERIES_BYTES_MAX < (kept + 2) * 3_700
    metrics.evict(1_000)
    assert push(30) == 1000, "there is room again"
