"""Sends encoded batches to real nodes: once, in order, in transactions."""

from array import array
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.raw_producer import Fenced, ProduceOptions, RawProducer, Region
from ottla.client.cluster import Refused
from ottla.client.offset_spec import LATEST
from ottla.formats.batch_encoder import (
    Cells,
    Columns,
    HeaderCells,
    encode_rows,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import TopicPartition
from ottla.testing import run_cluster, run_node


@pytest.fixture(scope="module")
def node():
    with run_node() as running:
        yield running


@pytest.fixture
def client(node):
    made = BrokerClient(
        SimpleNamespace(bootstrap=(node.bootstrap,), client_id="test", properties={})
    )
    yield made
    made.close()


def create(bootstrap, name, partitions=1, replicas=1):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(SECONDS_MAX)


def region(*values: bytes) -> Region:
    columns = Columns(
        Cells.of([None] * len(values)), Cells.of(list(values)), HeaderCells.none(len(values))
    )
    return encode_rows(columns, array("i", range(len(values))), 0, 1 << 30)


def read(bootstrap, topic, partition, count):
    """Read up to ``count`` records with read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([Assigned(topic, partition, 0)])
    found = []
    while len(found) < count:
        message = consumer.poll(10)
        assert message is not None, f"only {found}"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("compression", list(Compression), ids=lambda each: each.name)
def test_clients_read_every_codec(node, client, compression):
    topic = f"packed-{compression.name.lower()}"
    create(node.bootstrap, topic, 2)
    producer = RawProducer(client, ProduceOptions(compression=compression))
    producer.open()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer.send({first: [region(b"a", b"b"), region(b"c")], second: [region(b"x" * 5000)]})
    producer.send({first: [region(b"d")]})
    assert read(node.bootstrap, topic, 0, 4) == [b"a", b"b", b"c", b"d"]
    assert read(node.bootstrap, topic, 1, 1) == [b"x" * 5000]


def test_retried_batch_is_written_once(node, client):
    create(node.bootstrap, "again")
    producer = RawProducer(client, ProduceOptions())
    producer.open()
    where = TopicPartition("again", 0)
    batch = producer._build(where, region(b"once"))
    producer._deliver([batch])
    producer._deliver([batch])
    assert client.list_offsets({where: LATEST}, committed=False) == {where: 1}


def test_commit_shows_all_records_and_abort_none(node, client):
    create(node.bootstrap, "ends", 2)
    producer = RawProducer(client, ProduceOptions(transactional_id="ends"))
    producer.open()
    first, second = TopicPartition("ends", 0), TopicPartition("ends", 1)
    producer.send({first: [region(b"void")], second: [region(b"void")]})
    producer.abort()
    producer.send({first: [region(b"kept 0")]})
    producer.send({second: [region(b"kept 1")]})
    producer.commit()
    assert read(node.bootstrap, "ends", 0, 1) == [b"kept 0"]
    assert read(node.bootstrap, "ends", 1, 1) == [b"kept 1"]


def test_later_producer_fences_and_aborts_the_earlier(node, client):
    create(node.bootstrap, "taken")
    where = TopicPartition("taken", 0)
    zombie = RawProducer(client, ProduceOptions(transactional_id="taken"))
    zombie.open()
    zombie.send({where: [region(b"zombie")]})
    heir = RawProducer(client, ProduceOptions(transactional_id="taken"))
    heir.open()
    with pytest.raises(Fenced, match="taken"):
        zombie.commit()
    with pytest.raises(Fenced):
        zombie.send({where: [region(b"zombie again")]})
    heir.send({where: [region(b"heir")]})
    heir.commit()
    assert read(node.bootstrap, "taken", 0, 1) == [b"heir"]


def test_rejected_batch_error_names_the_partition(node, client):
    create(node.bootstrap, "small")
    producer = RawProducer(client, ProduceOptions())
    producer.open()
    with pytest.raises(Refused, match="small-0: MESSAGE_TOO_LARGE"):
        producer.send({TopicPartition("small", 0): [region(bytes(2 << 20))]})


def test_batches_survive_a_killed_leader():
    with run_cluster(3, processes=True) as cluster:
        create(cluster.bootstrap, "moving", 3, 3)
        client = BrokerClient(
            SimpleNamespace(
                bootstrap=tuple(cluster.bootstrap.split(",")), client_id="test", properties={}
            )
        )
        producer = RawProducer(client, ProduceOptions(transactional_id="moving"))
        producer.open()
        partitions = [TopicPartition("moving", number) for number in range(3)]
        producer.send({each: [region(b"before")] for each in partitions})
        cluster.kill(client.leader(partitions[0]).node_id)
        producer.send({each: [region(b"after")] for each in partitions})
        producer.commit()
        for number in range(3):
            assert read(cluster.bootstrap, "moving", number, 2) == [b"before", b"after"]
        client.close()
