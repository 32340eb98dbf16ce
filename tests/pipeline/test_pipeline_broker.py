"""The blocking client against real nodes: topics, offsets, groups, leaders that move."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient, client_for
from ottla.client.blocking.wire import Wire
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker, Refused
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.frames import response_frame
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Address
from ottla.testing import run_cluster, run_node


def settings(bootstrap, **properties):
    return SimpleNamespace(
        bootstrap=tuple(bootstrap.split(",")),
        client_id="test",
        properties={key.replace("_", "."): str(value) for key, value in properties.items()},
    )


@pytest.fixture(scope="module")
def node():
    with run_node() as running:
        yield running


@pytest.fixture
def client(node):
    made = BrokerClient(settings(node.bootstrap))
    yield made
    made.close()


def create(bootstrap, name, partitions=1, replicas=1):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(SECONDS_MAX)


def produce(bootstrap, topic, count, partition=0, timestamp=0):
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for index in range(count):
        producer.produce(
            topic,
            b"%d" % index,
            partition=partition,
            timestamp=timestamp + index if timestamp else 0,
        )
    assert producer.flush(SECONDS_MAX) == 0


class TestTopics:
    def test_topics_returns_existing_topics_with_ids_and_sizes(self, node, client):
        create(node.bootstrap, "listed", 3)
        found = client.topics(["listed", "nowhere"])
        assert list(found) == ["listed"]
        assert found["listed"].partitions == (0, 1, 2)
        assert found["listed"].topic_id != bytes(16)
        assert not found["listed"].is_internal
        assert client.topics(None)["listed"] == found["listed"]

    def test_empty_broker_list_in_metadata_is_retried(self, node, client, monkeypatch):
        """A broker that has just started returns topics but no brokers, not even itself."""
        create(node.bootstrap, "again")
        produce(node.bootstrap, "again", 3)
        client.leader(TopicPartition("again", 0))
        asked = []
        original = client._load_metadata

        def metadata(names):
            reply = original(names)
            asked.append(names)
            if len(asked) < 4:
                client._metadata.nodes = {}
            return reply

        monkeypatch.setattr(client, "_load_metadata", metadata)
        client._metadata.nodes = {}
        request = requests.describe_log_dirs({"again": range(1)})
        sizes = dict(requests.read_sizes(client.call(request, node=1)))
        assert sizes[TopicPartition("again", 0)] > 0
        assert len(asked) >= 4

    def test_invalid_topic_name_is_refused(self, client):
        with pytest.raises(Refused, match="INVALID_TOPIC"):
            client.topics(["no such/name"])

    def test_leader_of_unknown_topic_is_refused_without_creating_it(self, client):
        with pytest.raises(Refused, match="UNKNOWN_TOPIC"):
            client.leader(TopicPartition("never-made", 0))
        assert client.topics(["never-made"]) == {}

    def test_leader_of_unknown_partition_is_refused(self, node, client):
        create(node.bootstrap, "narrow")
        with pytest.raises(Refused, match="narrow-1: UNKNOWN_TOPIC"):
            client.list_offsets({TopicPartition("narrow", 1): LATEST}, committed=True)


class TestOffsets:
    def test_list_offsets_by_start_end_and_timestamp(self, node, client):
        create(node.bootstrap, "timed", 2)
        produce(node.bootstrap, "timed", 10, timestamp=1000)
        first, second = TopicPartition("timed", 0), TopicPartition("timed", 1)
        ends = client.list_offsets({first: LATEST, second: LATEST}, committed=True)
        assert ends == {first: 10, second: 0}
        assert client.list_offsets({first: EARLIEST}, committed=False) == {first: 0}
        assert client.list_offsets({first: 1004, second: 0}, committed=True) == {
            first: 4,
            second: -1,
        }

    def test_open_transaction_holds_back_the_last_stable_offset(self, node, client):
        create(node.bootstrap, "held")
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "held"})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("held", b"x")
        producer.flush(SECONDS_MAX)
        at = TopicPartition("held", 0)
        assert client.list_offsets({at: LATEST}, committed=True) == {at: 0}
        assert client.list_offsets({at: LATEST}, committed=False) == {at: 1}
        producer.abort_transaction(SECONDS_MAX)
        # The coordinator replies before the markers are written.
        deadline = time.monotonic() + SECONDS_MAX
        while client.list_offsets({at: LATEST}, committed=True) != {at: 2}:
            assert time.monotonic() < deadline

    def test_sizes_are_bytes_of_the_log(self, node, client):
        create(node.bootstrap, "sized", 2)
        produce(node.bootstrap, "sized", 100)
        sizes = client.sizes(["sized"])
        assert sizes[TopicPartition("sized", 0)] > 100
        assert sizes[TopicPartition("sized", 1)] == 0


class TestGroups:
    def test_committed_offsets_are_read_back(self, node, client):
        create(node.bootstrap, "grouped", 2)
        first, second = TopicPartition("grouped", 0), TopicPartition("grouped", 1)
        assert client.committed_offsets("readers", [first, second]) == {}
        client.commit_offsets("readers", {first: 7})
        assert client.committed_offsets("readers", [first, second]) == {first: 7}

    def test_empty_commit_sends_no_request(self):
        client = BrokerClient(settings("127.0.0.1:1"))
        client.commit_offsets("readers", {})
        assert client.committed_offsets("readers", []) == {}


class TestClients:
    def test_client_is_shared_per_settings_until_closed(self, node):
        first = client_for(settings(node.bootstrap))
        assert client_for(settings(node.bootstrap)) is first
        assert client_for(settings(node.bootstrap, retry_backoff_ms=7)) is not first
        first.close()
        assert client_for(settings(node.bootstrap)) is not first

    def test_bad_security_settings_are_refused_in_words(self):
        with pytest.raises(
            BadClientSecurity, match=r"kafka\.\*: GSSAPI needs sasl\.kerberos\.service"
        ):
            client_for(settings("127.0.0.1:1", security_protocol="sasl_plaintext"))

    def test_unreachable_broker_raises_no_broker_after_timeout(self):
        client = BrokerClient(settings("127.0.0.1:1", default_api_timeout_ms=50))
        with pytest.raises(NoBroker, match="refused"):
            client.topics(None)

    def test_connection_closed_while_idle_is_reopened(self, node, client):
        client.topics([])
        for line in client._lines.values():
            line.wire._stream.shutdown(socket.SHUT_RDWR)
        assert client.topics(["none-such"]) == {}

    def test_lent_connection_is_reused_unless_a_reply_is_outstanding(self, node, client):
        client.topics([])
        (node_id,) = client._metadata.nodes
        with client.lend(node_id) as first:
            first.ask(MetadataRequest())
        with client.lend(node_id) as second, client.lend(node_id) as third:
            assert second is first
            assert third is not first
            second.post(MetadataRequest())
        with client.lend(node_id) as fourth:
            assert fourth is third
        assert not first.is_open


class TestLeaders:
    @pytest.mark.slow
    def test_call_leader_follows_the_leader(self):
        with run_cluster(3) as cluster:
            create(cluster.bootstrap, "moving", 1, 3)
            produce(cluster.bootstrap, "moving", 5)
            client = BrokerClient(settings(cluster.bootstrap))
            at = TopicPartition("moving", 0)
            before = client.leader(at)
            cluster.stop(before.node_id)
            assert client.list_offsets({at: LATEST}, committed=True) == {at: 5}
            assert client.leader(at).node_id != before.node_id
            client.close()


class ScriptedNode:
    """Replies to each request on one connection with fixed bytes."""

    def __init__(self, *answers):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        with self._listening, self._listening.accept()[0] as peer:
            for answer in self._answers:
                length = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
                head = peer.recv(length, socket.MSG_WAITALL)
                peer.sendall(answer(int.from_bytes(head[4:8], "big")))

    def join(self):
        self._thread.join(SECONDS_MAX)


def versions(correlation_id):
    body = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 0, 13)])
    return response_frame(ApiKey.API_VERSIONS, 4, correlation_id, body)


def metadata(correlation_id):
    return response_frame(ApiKey.METADATA, 13, correlation_id, MetadataResponse(controller_id=5))


@pytest.mark.parametrize(
    "answer",
    [
        lambda correlation: metadata(correlation + 1),
        lambda _: (1 << 30).to_bytes(4, "big"),
        lambda _: bytes(4),
        lambda correlation: metadata(correlation)[:-3],
        lambda correlation: (9).to_bytes(4, "big") + metadata(correlation)[4:13],
    ],
    ids=["another's reply", "too long", "empty", "cut off", "no message"],
)
def test_malformed_reply_closes_the_connection(answer):
    node = ScriptedNode(versions, answer)
    wire = Wire.open(Address("127.0.0.1", node.port), "test", timeout_ms=10_000)
    with pytest.raises(ConnectionError):
        wire.ask(MetadataRequest())
    assert not wire.is_open
    node.join()


def test_replies_are_returned_in_request_order():
    node = ScriptedNode(versions, metadata, metadata)
    wire = Wire.open(Address("127.0.0.1", node.port), "test", timeout_ms=10_000)
    wire.post(MetadataRequest())
    wire.post(MetadataRequest())
    assert not wire.is_idle
    assert wire.take().controller_id == 5
    assert wire.take().controller_id == 5
    assert wire.is_idle
    wire.close()
    node.join()
