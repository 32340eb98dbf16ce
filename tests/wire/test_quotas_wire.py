"""Client quotas against a whole node, with librdkafka and with plain requests."""

import re
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from one_node import Line, OneNode, one_node, settings
from tests.patience import SECONDS_MAX

from ottla.metadata.registrations import Endpoint
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset

RATE = 400_000
VALUE = bytes(1000)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    root: Path = tmp_path_factory.mktemp("quotas")
    # Two windows: a second is saved up instead of ten, so that a rate can be measured soon.
    extra = ("quota.window.num=2", "ottla.metrics.listener=127.0.0.1:0")
    with one_node(settings(root, *extra, listeners=_LISTENERS)) as running:
        admin = AdminClient({"bootstrap.servers": str(running.address)})
        topics = [NewTopic(name, 1, 1) for name in ("slow", "fast", "read", "one-batch", "raw")]
        for future in admin.create_topics(topics).values():
            future.result(SECONDS_MAX)
        yield running


_LISTENERS = "PLAINTEXT://127.0.0.1:0,OTHER://[::1]:0,CONTROLLER://127.0.0.1:0"


def ask(line: Line, request: Message, version: int, client_id: str = "raw") -> Message:
    """Send a request and return the decoded reply."""
    key = ApiKey(request.SCHEMA.api_key or 0)
    line.send(bytes(request_frame(RequestHeader(key, version, 5, client_id), request)))
    _, body = parse_response_header(key, version, line.frame())
    return decode(response_class(key), version, bytes(body))


def set_quota(node: OneNode, key: str, value: float | None, **entity: str | None) -> None:
    """Set a quota as kafka-configs does, and wait until the broker goes by it."""
    parts = [RequestEntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
    entry = RequestEntryData(parts, [OpData(key, value or 0.0, value is None)])
    with Line(node.address) as line:
        alter(line, entry)


def alter(line: Line, entry: RequestEntryData) -> None:
    reply = ask(line, AlterClientQuotasRequest([entry]), 1, "quota-admin")
    assert [each.error_code for each in reply.entries] == [0]  # type: ignore[attr-defined]


def produced_rate(node: OneNode, client_id: str, topic: str, seconds: float) -> float:
    """Produce as fast as allowed; return bytes per second after the saved-up burst."""
    producer = Producer(
        {
            "bootstrap.servers": str(node.address),
            "client.id": client_id,
            "linger.ms": 5,
            "batch.size": 10_000,  # requests of the fast path
            "queue.buffering.max.messages": 2000,
            "max.in.flight": 1,
        }
    )
    delivered = 0
    marks: list[tuple[float, int]] = []

    def done(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += len(VALUE)
        marks.append((time.monotonic(), delivered))

    began = time.monotonic()
    while time.monotonic() - began < seconds + 1.5:
        try:
            producer.produce(topic, VALUE, on_delivery=done)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    return rate_of(marks, began + 1.5)


def rate_of(marks: list[tuple[float, int]], since: float) -> float:
    late = [mark for mark in marks if mark[0] >= since]
    (first_at, first), (last_at, last) = late[0], late[-1]
    return (last - first) / (last_at - first_at)


def consumed_rate(node: OneNode, client_id: str, seconds: float) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": str(node.address),
            "client.id": client_id,
            "group.id": client_id,
            "fetch.message.max.bytes": 100_000,
            "queued.min.messages": 100_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("read", 0, 0)])
    marks: list[tuple[float, int]] = []
    size, began = 0, time.monotonic()
    while time.monotonic() - began < seconds + 1.5:
        for message in consumer.consume(500, 0.05):
            assert message.error() is None
            size += len(message.value())
            marks.append((time.monotonic(), size))
    consumer.close()
    return rate_of(marks, began + 1.5)


LENGTHS = [4.0, pytest.param(30.0, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("seconds", LENGTHS)
def test_producer_keeps_to_its_quota_and_another_is_not_affected(
    node: OneNode, seconds: float
) -> None:
    set_quota(node, "producer_byte_rate", RATE, client_id="slow-producer")
    rates: dict[str, float] = {}

    def run(client_id: str, topic: str) -> None:
        rates[client_id] = produced_rate(node, client_id, topic, seconds)

    threads = [
        threading.Thread(target=run, args=each)
        for each in (("slow-producer", "slow"), ("fast-producer", "fast"))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert rates["slow-producer"] == pytest.approx(RATE, rel=0.10)
    assert rates["fast-producer"] > 5 * RATE
    with urllib.request.urlopen(
        f"http://{node.node.metrics_addr}/metrics", timeout=SECONDS_MAX
    ) as page:
        shown = page.read().decode()
    label = '{client_id="slow-producer",user=""}'
    assert f"kafka_server_produce_byte_rate{label}" in shown
    throttled = re.search(rf"kafka_server_produce_throttle_time{label} ([\d.]+)", shown)
    assert throttled is not None and float(throttled[1]) > 0
    assert "fast-producer" not in shown, "it has no quota"


@pytest.mark.parametrize("seconds", LENGTHS)
def test_consumer_keeps_to_its_quota(node: OneNode, seconds: float) -> None:
    # A reply may end within a batch, which is then fetched again: keep that part small.
    small = {"linger.ms": 5, "batch.size": 5000}
    producer = Producer({"bootstrap.servers": str(node.address), **small})
    for _ in range(int(seconds * 1500)):
        producer.produce("read", VALUE)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    set_quota(node, "consumer_byte_rate", RATE, client_id="slow-consumer")
    assert consumed_rate(node, "slow-consumer", seconds) == pytest.approx(RATE, rel=0.10)


def test_fetch_over_quota_is_empty_and_mutes_the_connection(node: OneNode) -> None:
    # One batch of a topic that no other test writes to: a reply has the first batch whole, even
    # above the quota. It is sent once it is full, and not by a flush before.
    options = {"linger.ms": 100_000, "batch.num.messages": 12}
    producer = Producer({"bootstrap.servers": str(node.address), **options})
    for _ in range(12):
        producer.produce("one-batch", VALUE)
    deadline = time.monotonic() + SECONDS_MAX
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)
    assert len(producer) == 0
    set_quota(node, "consumer_byte_rate", 8000.0, client_id="raw-reader")
    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="one-batch",
                partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    with Line(node.address) as line, Line(node.address) as second:
        first = ask(line, fetch, 11, "raw-reader")
        assert first.throttle_time_ms > 0  # type: ignore[attr-defined]
        assert first.responses[0].partitions[0].records  # type: ignore[attr-defined]
        over = ask(second, fetch, 11, "raw-reader")
        assert over.throttle_time_ms > 0 and not over.responses  # type: ignore[attr-defined]
        began = time.monotonic()
        ask(line, MetadataRequest(), 9, "raw-reader")
        waited_ms = (time.monotonic() - began) * 1000
        assert waited_ms > first.throttle_time_ms * 0.8  # type: ignore[attr-defined]
    with Line(node.address) as other:
        assert ask(other, fetch, 11, "other-reader").throttle_time_ms == 0  # type: ignore[attr-defined]


def test_request_percentage_of_a_user_throttles_every_api(node: OneNode) -> None:
    set_quota(node, "request_percentage", 0.01, user="ANONYMOUS", client_id="busy")
    with Line(node.address) as line:
        seen = [ask(line, MetadataRequest(), 9, "busy").throttle_time_ms for _ in range(4)]  # type: ignore[attr-defined]
    assert seen[-1] > 0 and max(seen) <= 1000
    with Line(node.address) as line:
        assert ask(line, MetadataRequest(), 9, "calm").throttle_time_ms == 0  # type: ignore[attr-defined]


def test_request_percentage_of_zero_mutes_a_connection_for_one_window(node: OneNode) -> None:
    """The bound of one window holds however large the debt is."""
    set_quota(node, "request_percentage", 0.001, client_id="muted")
    with Line(node.address) as line:
        for _ in range(3):
            reply = ask(line, MetadataRequest(), 9, "muted")
        assert reply.throttle_time_ms == 1000  # type: ignore[attr-defined]
        began = time.monotonic()
        ask(line, MetadataRequest(), 9, "muted")
        assert time.monotonic() - began > 0.8
    set_quota(node, "request_percentage", None, client_id="muted")
    with Line(node.address) as line:
        assert ask(line, MetadataRequest(), 9, "muted").throttle_time_ms == 0  # type: ignore[attr-defined]


def test_request_percentage_exempts_produce_without_acks(node: OneNode) -> None:
    """As in Kafka: were each charged, each would mute the connection for a second."""
    set_quota(node, "request_percentage", 0.001, client_id="unacked")
    batch = bytes(build_batch([Record(Offset(0), 1, None, b"v")]))
    topic = TopicProduceData("raw", partition_data=[PartitionProduceData(0, batch)])
    produce = ProduceRequest(None, 0, 5000, [topic])
    frame = bytes(request_frame(RequestHeader(ApiKey.PRODUCE, 9, 1, "unacked"), produce))
    seconds = 20
    with Line(node.address) as line:
        began = time.monotonic()
        for _ in range(seconds):
            line.send(frame)
        ask(line, MetadataRequest(), 9, "unacked")
        assert time.monotonic() - began < seconds / 2


def test_forwarded_change_is_throttled_by_request_percentage(node: OneNode) -> None:
    set_quota(node, "request_percentage", 0.01, client_id="changer")
    topics = [CreatableTopic(f"changed-{number}", 1, 1) for number in range(20)]
    with Line(node.address) as line:
        request = CreateTopicsRequest(topics, timeout_ms=10_000, validate_only=True)
        seen = [ask(line, request, 7, "changer").throttle_time_ms for _ in range(2)]  # type: ignore[attr-defined]
    assert 0 < seen[-1] <= 1000


def test_default_and_specific_request_percentages_apply_by_entity(node: OneNode) -> None:
    set_quota(node, "request_percentage", 0.001, client_id=None)
    set_quota(node, "request_percentage", 1000.0, client_id="special")
    try:
        with Line(node.address) as line:
            for _ in range(3):
                reply = ask(line, MetadataRequest(), 9, "anyone")
            assert reply.throttle_time_ms > 0  # type: ignore[attr-defined]
        with Line(node.address) as line:
            for _ in range(3):
                reply = ask(line, MetadataRequest(), 9, "special")
            assert reply.throttle_time_ms == 0  # type: ignore[attr-defined]
    finally:
        set_quota(node, "request_percentage", None, client_id=None)


def test_topics_above_the_mutation_quota_are_rejected_or_delayed(node: OneNode) -> None:
    set_quota(node, "controller_mutation_rate", 2.0, client_id="creator")

    def create(line: Line, name: str, partitions: int, version: int) -> tuple[int, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        reply = ask(line, request, version, "creator")
        return reply.topics[0].error_code, reply.throttle_time_ms  # type: ignore[attr-defined]

    with Line(node.address) as line:
        assert create(line, "m1", 26, 7) == (0, 0)  # more than the burst of 22, all at once
        code, throttle_ms = create(line, "m2", 1, 7)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and 0 < throttle_ms <= 2000
        # The connection was muted for as long: the debt is paid by now, and there is no other.
        code, throttle_ms = create(line, "m3", 2, 5)
        assert code == 0 and throttle_ms > 0  # a client that does not know the error


@pytest.mark.parametrize(
    ("ip", "listener"), [("127.0.0.1", "PLAINTEXT"), ("0:0:0:0:0:0:0:1", "OTHER")]
)
def test_connections_of_an_address_above_its_rate_are_served_late_or_closed(
    node: OneNode, ip: str, listener: str
) -> None:
    address = [RequestEntityData("ip", ip)]
    at = node.node.image.cluster.brokers[node.node.node_id].listeners[listener]
    with Line(node.address) as admin:
        alter(admin, RequestEntryData(address, [OpData("connection_creation_rate", 3.0)]))
        began = time.monotonic()
        assert connections_served(at, 8) < 8, "what is above the rate for too long is closed"
        assert time.monotonic() - began > 0.9, "three at once, the last after the longest delay"
        alter(admin, RequestEntryData(address, [OpData("connection_creation_rate", 0.0, True)]))
    began = time.monotonic()
    assert connections_served(at, 8) == 8
    assert time.monotonic() - began < 0.9


def connections_served(at: Endpoint, count: int) -> int:
    """Open connections at once and return how many get a reply."""
    served = 0
    sockets = [socket.create_connection((at.host, at.port), timeout=5) for _ in range(count)]
    frame = bytes(request_frame(RequestHeader(ApiKey.METADATA, 9, 1, "ip"), MetadataRequest()))
    for each in sockets:
        try:
            each.sendall(frame)
            served += len(each.recv(4)) == struct.calcsize(">i")
        except ConnectionError:
            pass
        finally:
            each.close()
    return served
