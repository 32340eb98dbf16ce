"""Leadership that moves back and forth under librdkafka: no hang, no loss, no duplicate."""

import asyncio
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.testing import Cluster, run_cluster

FLAPS = 6
EACH = 40
TOPIC = "flaps"
PREFERRED = 0
CONFIG = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


def ask(cluster: Cluster, *requests: Message) -> None:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)

    async def story() -> None:
        connection = await Connection.open(TcpNetwork(), Address(host, int(port)))
        try:
            for request in requests:
                await connection.send(request, timeout_ms=30_000)
        finally:
            await connection.close()

    asyncio.run(story())


def leader(admin: AdminClient) -> int:
    found = admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC].partitions
    return int(found[0].leader) if found else -1


def lead(cluster: Cluster, admin: AdminClient, node: int) -> None:
    """Make a node leader, and wait until brokers report it."""
    others = [each for each in cluster.node_ids if each != node]
    topic = ReassignableTopic(TOPIC, [ReassignablePartition(0, [node, *others])])
    wanted = [TopicPartitions(TOPIC, [0])]
    deadline = time.monotonic() + SECONDS_MAX
    while leader(admin) != node:
        assert time.monotonic() < deadline, f"{node} does not come to lead"
        ask(
            cluster,
            AlterPartitionReassignmentsRequest(10_000, topics=[topic]),
            ElectLeadersRequest(PREFERRED, wanted, 10_000),
        )


def test_consumer_continues_through_many_leader_changes() -> None:
    with run_cluster(3, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(SECONDS_MAX)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "flaps",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC])
        wanted: list[str] = []
        found: list[str] = []
        for turn in range(FLAPS):
            values = [f"{turn}-{number}" for number in range(EACH)]
            for value in values:
                producer.produce(TOPIC, value.encode())
            wanted += values
            lead(cluster, admin, cluster.node_ids[turn % 3])
            assert producer.flush(SECONDS_MAX) == 0
            deadline = time.monotonic() + SECONDS_MAX
            while len(found) < len(wanted):
                assert time.monotonic() < deadline, f"hangs at {len(found)} in turn {turn}"
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.append(message.value().decode())
        consumer.close()
    assert found == wanted
