"""Transactions over three brokers: markers go to other nodes, and coordinators are killed."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.coordinators.topics import TRANSACTION_STATE, partition_for
from ottla.testing import Cluster, run_cluster

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "3",
        "min.insync.replicas": "2",
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "1500",
        "group.initial.rebalance.delay.ms": "0",
    }
    with run_cluster(3, processes=True, config=config) as cluster:
        yield cluster


def topic_of(cluster: Cluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(SECONDS_MAX)
    return name


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    """Return the node that leads the id's partition of the transaction log."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = admin.list_topics(timeout=SECONDS_MAX).topics
    log = topics[TRANSACTION_STATE].partitions
    return int(log[partition_for(transactional_id, len(log))].leader)


def read_committed(
    cluster: Cluster, topic: str, is_enough: Callable[[list[str]], bool]
) -> list[str]:
    """Return what a consumer reads, in the order of partitions, until it has enough."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        found: list[str] = []
        deadline = time.monotonic() + SECONDS_MAX
        while not is_enough(found) and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
        while (message := consumer.poll(0.5)) is not None:
            if message.error() is None:
                found.append(message.value().decode())
    finally:
        consumer.close()
    return sorted(found)


def send(producer: Producer, topic: str, value: str) -> None:
    """Write one record to each partition; return once they are written."""
    for index in range(PARTITIONS):
        producer.produce(topic, f"{value}{index}".encode(), partition=index)
    assert producer.flush(SECONDS_MAX) == 0


def transactional(cluster: Cluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)
    return producer


def test_transaction_survives_a_killed_coordinator(
    cluster: Cluster,
) -> None:
    """Killed between the records and the end: the next coordinator knows which partitions to end.

    One producer continues and commits; another comes back as a new process, and its open
    transaction is aborted before it may start another.
    """
    topic = topic_of(cluster, "b1")
    going, coming = transactional(cluster, "b1"), transactional(cluster, "b6")
    for value, end in (("kept", going.commit_transaction), ("dropped", going.abort_transaction)):
        going.begin_transaction()
        send(going, topic, value)
        end(SECONDS_MAX)
    for producer, value in ((going, "killed"), (coming, "lost")):
        producer.begin_transaction()
        send(producer, topic, value)
    cluster.kill(coordinator_of(cluster, "b1"))
    going.commit_transaction(SECONDS_MAX)
    again = transactional(cluster, "b6")
    again.begin_transaction()
    send(again, topic, "new")
    again.commit_transaction(SECONDS_MAX)
    committed = ("kept", "killed", "new")
    wanted = sorted(f"{value}{n}" for value in committed for n in range(PARTITIONS))
    assert read_committed(cluster, topic, lambda found: len(found) >= len(wanted)) == wanted
