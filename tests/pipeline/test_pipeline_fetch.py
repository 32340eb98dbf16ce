"""Raw fetches from real nodes: ranges, transactions, losses, and leaders that move."""

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from test_pipeline_broker import create, produce, settings
from tests.patience import SECONDS_MAX

from ottla.client.blocking import range_fetch
from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import (
    DataLost,
    OutOfRange,
    ReadStalled,
    TopicRecreated,
    fetch_batches,
)
from ottla.client.blocking.wire import Wire
from ottla.client.cluster import NoBroker, Refused
from ottla.client.offset_spec import LATEST
from ottla.formats.arrow_batches import record_batches
from ottla.protocol.types import TopicPartition
from ottla.testing import run_cluster, run_node


@pytest.fixture(scope="module")
def node():
    with run_node() as running:
        yield running


@pytest.fixture
def client(node):
    made = BrokerClient(settings(node.bootstrap, fetch_max_bytes=2000))
    yield made
    made.close()


def values(client, partition, start, end, *, committed=True, **options):
    chunks = fetch_batches(client, partition, start, end, committed=committed, **options)
    found = []
    for batch in record_batches(chunks, partition, ("offset", "value"), start, end):
        found += batch.to_pydict()["value"]
    return found


def produce_slowly(bootstrap, topic, count):
    """Write batches of few records, so that a range spans many fetches."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 5})
    for index in range(count):
        producer.produce(topic, b"%d" % index * 10, partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return [b"%d" % index * 10 for index in range(count)]


def wait_until(condition):
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline


class TestRanges:
    def test_range_over_many_fetches_yields_each_record_once(self, node, client):
        create(node.bootstrap, "whole")
        sent = produce_slowly(node.bootstrap, "whole", 400)
        at = TopicPartition("whole", 0)
        assert values(client, at, 0, 400) == sent
        assert values(client, at, 17, 391) == sent[17:391]
        assert values(client, at, 399, 400) == sent[399:]
        assert values(client, at, 5, 5) == []

    def test_stopped_reader_leaves_the_client_usable(self, node, client):
        create(node.bootstrap, "stopped")
        sent = produce_slowly(node.bootstrap, "stopped", 400)
        at = TopicPartition("stopped", 0)
        chunks = fetch_batches(client, at, 0, 400, committed=True)
        next(chunks)
        chunks.close()
        assert values(client, at, 0, 400) == sent

    def test_concurrent_readers_do_not_interfere(self, node, client):
        create(node.bootstrap, "mixed", 2)
        produce(node.bootstrap, "mixed", 100, partition=0)
        produce(node.bootstrap, "mixed", 100, partition=1)
        first, second = (
            fetch_batches(client, TopicPartition("mixed", each), 0, 100, committed=True)
            for each in (0, 1)
        )
        pairs = list(zip(first, second, strict=True))
        assert pairs

    def test_failed_send_ahead_does_not_lose_a_chunk(self, node, client, monkeypatch):
        create(node.bootstrap, "broken")
        sent = produce_slowly(node.bootstrap, "broken", 400)
        posted, original = [], Wire.post

        def post(wire, request):
            posted.append(request)
            if len(posted) % 3 == 0:
                wire._stream.close()
            original(wire, request)

        monkeypatch.setattr(Wire, "post", post)
        assert values(client, TopicPartition("broken", 0), 0, 400) == sent
        assert len(posted) > 9

    def test_range_of_aborted_records_ends(self, node, client):
        create(node.bootstrap, "aborted")
        at = TopicPartition("aborted", 0)
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "fetching"})
        producer.init_transactions(SECONDS_MAX)
        for outcome, value in [
            ("commit", b"1"),
            ("abort", b"2"),
            ("commit", b"3"),
            ("abort", b"4"),
        ]:
            producer.begin_transaction()
            for _ in range(3):
                producer.produce("aborted", value * 100)
            producer.flush(SECONDS_MAX)
            getattr(producer, f"{outcome}_transaction")(10)
        wait_until(lambda: client.list_offsets({at: LATEST}, committed=True) == {at: 16})
        assert values(client, at, 0, 16) == [b"1" * 100] * 3 + [b"3" * 100] * 3
        assert values(client, at, 5, 9) == [b"3" * 100]
        uncommitted = values(client, at, 0, 16, committed=False)
        assert [each[:1] for each in uncommitted] == [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3 + [
            b"4"
        ] * 3

    def test_fetch_of_unknown_partition_is_refused(self, node, client):
        create(node.bootstrap, "single")
        with pytest.raises(Refused, match="UNKNOWN_TOPIC"):
            values(client, TopicPartition("single", 4), 0, 1)


class TestLosses:
    def test_deleted_records_raise_data_lost_with_log_start(self, node, client):
        create(node.bootstrap, "cut")
        produce_slowly(node.bootstrap, "cut", 100)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for future in admin.delete_records([ConfluentPartition("cut", 0, 40)]).values():
            future.result(SECONDS_MAX)
        with pytest.raises(DataLost, match=r"cut-0: offset 10 is gone, .* starts at 40") as lost:
            values(client, TopicPartition("cut", 0), 10, 100)
        assert (lost.value.offset, lost.value.log_start) == (10, 40)
        assert len(values(client, TopicPartition("cut", 0), 40, 100)) == 60

    def test_offsets_beyond_the_end_raise_out_of_range(self, node, client):
        create(node.bootstrap, "short")
        produce(node.bootstrap, "short", 3)
        with pytest.raises(OutOfRange, match="beyond the log's end at 3"):
            values(client, TopicPartition("short", 0), 10, 20)

    def test_range_beyond_the_log_end_raises_read_stalled(self, node, client, monkeypatch):
        create(node.bootstrap, "stalled")
        produce(node.bootstrap, "stalled", 3)
        monkeypatch.setattr(range_fetch, "READ_TIMEOUT_MS", 200)
        with pytest.raises(ReadStalled, match="stalled-0: no records at offset 3"):
            values(client, TopicPartition("stalled", 0), 0, 4)

    def test_recreated_topic_raises_topic_recreated(self, node, client):
        create(node.bootstrap, "renewed")
        produce(node.bootstrap, "renewed", 3)
        at = TopicPartition("renewed", 0)
        topic_id = client.topic("renewed").topic_id
        assert len(values(client, at, 0, 3, topic_id=topic_id)) == 3
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.delete_topics(["renewed"])["renewed"].result(SECONDS_MAX)
        admin.create_topics([NewTopic("renewed", 1, 1)])["renewed"].result(SECONDS_MAX)
        produce(node.bootstrap, "renewed", 3)
        with pytest.raises(TopicRecreated, match="topic renewed was deleted and recreated"):
            values(client, at, 0, 3, topic_id=topic_id)
        assert len(values(client, at, 0, 3)) == 3


class TestGaps:
    def test_range_that_ends_in_a_compaction_gap_ends(self, monkeypatch, client, node):
        """The reply for a gap at the end of a range: no records, and a higher readable end."""
        create(node.bootstrap, "gap")
        produce(node.bootstrap, "gap", 3)
        original = range_fetch._partition_of

        def emptied(reply, partition):
            found = original(reply, partition)
            found.records = b""
            return found

        monkeypatch.setattr(range_fetch, "_partition_of", emptied)
        assert values(client, TopicPartition("gap", 0), 0, 3) == []


@pytest.mark.slow
def test_fetch_continues_with_the_next_leader():
    with run_cluster(3) as cluster:
        create(cluster.bootstrap, "moving", 1, 3)
        sent = produce_slowly(cluster.bootstrap, "moving", 400)
        client = BrokerClient(settings(cluster.bootstrap, fetch_max_bytes=2000))
        at = TopicPartition("moving", 0)
        chunks = fetch_batches(client, at, 0, 400, committed=True)
        first = next(chunks)
        cluster.stop(client.leader(at).node_id)
        everything = [first, *chunks]
        found = [
            value
            for batch in record_batches(everything, at, ("value",), 0, 400)
            for value in batch.to_pydict()["value"]
        ]
        assert found == sent
        client.close()


def test_fetch_without_brokers_raises_no_broker():
    with run_node() as running:
        create(running.bootstrap, "left")
        sent = produce_slowly(running.bootstrap, "left", 400)
        assert sent
        client = BrokerClient(
            settings(running.bootstrap, fetch_max_bytes=2000, default_api_timeout_ms=100)
        )
        chunks = fetch_batches(client, TopicPartition("left", 0), 0, 400, committed=True)
        next(chunks)
    with pytest.raises(NoBroker):
        list(chunks)
    client.close()
