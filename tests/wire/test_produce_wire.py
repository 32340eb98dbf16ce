"""Produce and related APIs of a running node: every version, real clients."""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from produce_node import Node, running_node
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.records.batch import Compression, batches
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as found:
        yield found


def batch_of(*values: bytes, **fields) -> bytearray:
    now = Millis(int(time.time() * 1000))
    return build_batch([Record(Offset(i), now, b"k", v) for i, v in enumerate(values)], **fields)


def test_produce_is_advertised_from_0_and_served_from_3(node: Node) -> None:
    response = node.client.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    advertised = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert advertised[ApiKey.PRODUCE] == (0, 13)
    assert {ApiKey.INIT_PRODUCER_ID, ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS} <= set(
        advertised
    )


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_other_versions_close_the_connection(node: Node, version: int) -> None:
    with node.connected() as client:
        client.send_bytes(b"\0\0\0\x0a\0\0" + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff")
        assert client.is_closed()


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_is_read_back(node: Node, version: int) -> None:
    topic = node.topic(partitions=2)
    for index in (0, 1):
        for offset in (0, 1):
            outcome = node.produce(topic, batch_of(b"v%d" % offset), version, index=index)
            assert (outcome.error_code, outcome.base_offset) == (0, offset)
        assert [each.value for each in node.records(topic, index)] == [b"v0", b"v1"]


def test_acks_0_has_no_reply_keeps_order_and_closes_on_failure(node: Node) -> None:
    topic = node.topic()
    with node.connected() as client:
        for value in (b"a", b"b"):
            client.send(ApiKey.PRODUCE, 9, node.request(topic, batch_of(value), acks=0))
        response = client.ask(ApiKey.PRODUCE, 9, node.request(topic, batch_of(b"c"), acks=1))
        assert response.responses[0].partition_responses[0].base_offset == 2
        client.send(ApiKey.PRODUCE, 9, node.request(topic, b"", acks=0))
        assert client.is_closed()
    assert [each.value for each in node.records(topic)] == [b"a", b"b", b"c"]


def test_truncated_body_closes_the_connection_and_appends_nothing(node: Node) -> None:
    topic = node.topic()
    with node.connected() as client:
        frame = request_frame(
            RequestHeader(ApiKey.PRODUCE, 9, 1, "c"), node.request(topic, batch_of(b"a"))
        )
        client.send_bytes((len(frame) - 5).to_bytes(4, "big") + frame[4:-1])
        assert client.is_closed()
    assert node.stored(topic) == b""


def test_pipelined_requests_of_all_kinds_are_answered_in_order(node: Node) -> None:
    topic = node.topic()
    with node.connected() as client:
        sent = [
            client.send(ApiKey.PRODUCE, 9, node.request(topic, batch_of(b"%d" % n), acks=acks))
            for n, acks in enumerate([1, -1] * 50)
        ]
        for offset, number in enumerate(sent):
            response = client.receive(ApiKey.PRODUCE, 9, number)
            assert response.responses[0].partition_responses[0].base_offset == offset
    assert [each.value for each in node.records(topic)] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("codec", Compression)
def test_topic_compression_type_is_stored(node: Node, codec: Compression) -> None:
    names = {Compression.NONE: "uncompressed"}
    topic = node.topic(compression_type=names.get(codec, codec.name.lower()))
    for source in Compression:
        assert node.code(topic, batch_of(b"x" * 300, compression=source)) is ErrorCode.NONE
    stored = node.stored(topic)
    assert {header.compression for _, header in batches(stored)} == {codec}
    assert [each.value for each in node.records(topic)] == [b"x" * 300] * 5


def test_log_append_time_is_set_by_the_broker(node: Node) -> None:
    topic = node.topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    old = build_batch([Record(Offset(0), Millis(5), b"k", b"v")])
    outcome = node.produce(topic, old)
    assert before <= outcome.log_append_time_ms <= time.time() * 1000 + 1
    (record,) = node.records(topic)
    assert record.timestamp == outcome.log_append_time_ms


def init(node: Node, **fields):
    fields = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1, **fields}
    return node.client.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(**fields))


def test_idempotent_producer_writes_no_duplicate(node: Node) -> None:
    topic = node.topic()
    first, second = init(node), init(node)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id
    producer = Producer(first.producer_id, 0, 0)
    for _ in range(3):
        assert node.produce(topic, batch_of(b"once", producer=producer)).base_offset == 0
    assert [each.value for each in node.records(topic)] == [b"once"]
    # Nobody has looked for its coordinator yet, so no broker is one.
    assert init(node, transactional_id="t").error_code == ErrorCode.NOT_COORDINATOR
    request = DescribeProducersRequest([TopicRequest(topic, [0])])
    response = node.client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    (described,) = response.topics[0].partitions[0].active_producers
    assert (described.producer_id, described.last_sequence) == (first.producer_id, 0)


def test_deleted_records_are_not_readable(node: Node) -> None:
    topic = node.topic()
    for value in (b"a", b"b", b"c"):
        node.produce(topic, batch_of(value))
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 2)])
    request = DeleteRecordsRequest([wanted], 5000)
    response = node.client.ask(ApiKey.DELETE_RECORDS, 2, request)
    (outcome,) = response.topics[0].partitions
    assert (outcome.error_code, outcome.low_watermark) == (0, 2)
    assert node.produce(topic, batch_of(b"d")).log_start_offset == 2


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_produces(node: Node, acks: str, codec: str) -> None:
    topic = node.topic()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "acks": acks,
            "compression.type": codec,
            "linger.ms": 1,
            "topic.metadata.refresh.interval.ms": -1,
        }
    )
    failed: list[object] = []
    for number in range(200):
        producer.produce(
            topic, b"value %d" % number, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(SECONDS_MAX) == 0 and not failed
    if acks == "0":  # nothing tells when the last is there
        deadline = time.monotonic() + SECONDS_MAX
        while len(node.records(topic)) < 200 and time.monotonic() < deadline:
            continue
    assert [each.value for each in node.records(topic)] == [b"value %d" % n for n in range(200)]


def test_librdkafka_produces_idempotently(node: Node) -> None:
    topic = node.topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0
    stored = node.stored(topic)
    assert all(header.producer_id >= 0 for _, header in batches(stored))
    assert [each.value for each in node.records(topic)] == [b"%d" % n for n in range(100)]
