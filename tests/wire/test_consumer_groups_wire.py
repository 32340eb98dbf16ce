"""Consumer groups (KIP-848) of a running node, by librdkafka."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.testing import Cluster, run_node

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_node(config=QUICK) as node:
        yield node


def topic_with_records(node: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic(name, 4, 1)]).values():
        future.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(40):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(SECONDS_MAX) == 0


def member(node: Cluster, group: str, *topics: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def poll_until(is_done: Callable[[], bool], *members: Consumer) -> list[bytes]:
    """Poll members in turn until something is so; return what they read."""
    read: list[bytes] = []
    end = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < end, [len(each.assignment()) for each in members]
        for each in members:
            record = each.poll(0.05)
            if record is not None:
                assert record.error() is None, record.error()
                read.append(record.value())
    return read


def partitions(consumer: Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def test_partitions_move_from_one_member_to_the_next(node: Cluster) -> None:
    topic_with_records(node, "moving")
    first = member(node, "movers", "moving")
    read: list[bytes] = []
    read += poll_until(lambda: len(partitions(first)) == 4, first)
    while len(read) < 40:
        seen = len(read)
        read += [each.value() for each in first.consume(40, 1.0)]
        assert len(read) > seen
    second = member(node, "movers", "^movi.*")
    read += poll_until(
        lambda: len(partitions(first)) == len(partitions(second)) == 2, first, second
    )
    assert partitions(first) | partitions(second) == {0, 1, 2, 3}
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    group = admin.describe_consumer_groups(["movers"])["movers"].result(SECONDS_MAX)
    assert (group.type.name, len(group.members)) == ("CONSUMER", 2)
    first.close()
    read += poll_until(lambda: len(partitions(second)) == 4, second)
    second.close()
    assert sorted(read) == sorted(str(number).encode() for number in range(40)), "each once"
