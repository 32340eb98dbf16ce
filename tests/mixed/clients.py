"""Small clients for mixed clusters: create a topic, write, read everything, compare replicas."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.mixed.cluster import MixedCluster, wait_until
from tests.nemesis.load import LOGGER
from tests.nemesis.replicas import batches_in

ANSWER_S_MAX = 60.0


class Clients:
    """Clients of one cluster; ``settings`` are additional ones of librdkafka."""

    def __init__(self, cluster: MixedCluster, settings: Mapping[str, Any] | None = None) -> None:
        self.cluster = cluster
        self._settings = {"bootstrap.servers": cluster.bootstrap, **(settings or {})}
        self.admin = AdminClient(dict(self._settings), logger=LOGGER)

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = 3,
        *,
        has_all_brokers: bool = True,
        **config: str,
    ) -> None:
        """Create a topic; wait until everything is in sync, if all brokers are running."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, replicas, config=named)
        self.admin.create_topics([new])[topic].result(ANSWER_S_MAX)
        if has_all_brokers:
            self.wait_in_sync(topic)

    def create_at(self, topic: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic with the given replicas; the first of each partition leads it."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(
            topic,
            len(assignment),
            replica_assignment=[list(each) for each in assignment],
            config=named,
        )
        self.admin.create_topics([new])[topic].result(ANSWER_S_MAX)
        self.wait_in_sync(topic)

    def wait_in_sync(self, topic: str) -> None:
        def is_seen() -> bool:
            for node_id in self.cluster.brokers:
                if node_id in self.cluster.running:
                    reply = self.cluster.metadata(node_id)
                    if reply is None or all(each.name != topic for each in reply.topics):
                        return False
            return self.cluster.is_whole()

        wait_until(is_seen, ANSWER_S_MAX, f"all replicas of {topic} in sync")

    def producer(self, **settings: Any) -> Producer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer(
            {**self._settings, "enable.idempotence": True, "linger.ms": 5, **named}, logger=LOGGER
        )

    def write(self, topic: str, values: Iterable[str], partition: int = 0, **settings: Any) -> None:
        """Write values, and wait until all are acknowledged by all in-sync replicas."""
        errors: list[object] = []
        producer = self.producer(**settings)

        def done(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for value in values:
            producer.produce(topic, value.encode(), value.encode(), partition, on_delivery=done)
            producer.poll(0)
        assert producer.flush(ANSWER_S_MAX) == 0 and errors == []

    def transaction(self, name: str, topic: str, values: Iterable[str], *, commit: bool) -> None:
        """Write values in a transaction of one producer."""
        producer = self.producer(transactional_id=name)
        producer.init_transactions(ANSWER_S_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), value.encode())
        if commit:
            producer.commit_transaction(ANSWER_S_MAX)
        else:
            producer.flush(ANSWER_S_MAX)
            producer.abort_transaction(ANSWER_S_MAX)

    def read(self, topic: str, isolation: str = "read_committed", **settings: Any) -> list[str]:
        """Read a topic from its start to the end that it has now, partition by partition."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "reading",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **named,
            },
            logger=LOGGER,
        )
        try:
            return self._read(consumer, topic)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, topic: str) -> list[str]:
        found = consumer.list_topics(topic, ANSWER_S_MAX).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in found])
        left, values = set(found), dict[int, list[str]]()
        deadline = time.monotonic() + ANSWER_S_MAX
        while left:
            assert time.monotonic() < deadline, f"{topic} was not read to its end: {left}"
            for message in consumer.consume(500, 0.5):
                error = message.error()
                if error is None:
                    value = (message.value() or b"").decode()
                    values.setdefault(message.partition(), []).append(value)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        return [value for each in sorted(values) for value in values[each]]

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the high watermark of a partition."""
        at = TopicPartition(topic, partition)
        found = self.admin.list_offsets({at: OffsetSpec.latest()})[at]
        return int(found.result(ANSWER_S_MAX).offset)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, -1 if it has none."""
        found = self.admin.list_topics(topic, ANSWER_S_MAX).topics[topic]
        return int(found.partitions[partition].leader)


def leader_at(cluster: MixedCluster, topic: str, asked: int) -> int | None:
    """Return the leader of a topic's first partition as one broker knows it, -1 if it has none."""
    reply = cluster.metadata(asked)
    topics = [] if reply is None else [each for each in reply.topics if each.name == topic]
    return int(topics[0].partitions[0].leader_id) if topics else None


def wait_leads(cluster: MixedCluster, topic: str, node_id: int) -> None:
    """Wait until a broker says that it leads a topic's first partition."""
    wait_until(
        lambda: leader_at(cluster, topic, node_id) == node_id,
        ANSWER_S_MAX,
        f"broker {node_id} leads {topic}",
    )


def partition_dirs(cluster: MixedCluster, name: str) -> dict[int, Path]:
    """Return the directory of a partition on every node that has it."""
    return {
        node_id: directory / name
        for node_id in cluster.node_ids
        for directory in cluster.directories(node_id)
        if (directory / name).is_dir()
    }


def assert_replicas_equal(cluster: MixedCluster, name: str, *, replicas: int) -> None:
    """Assert that all replicas of a partition have the same batches, byte by byte."""
    found = partition_dirs(cluster, name)
    assert len(found) == replicas, f"{name} is on {sorted(found)}"

    def contents() -> list[list[tuple[int, str]]]:
        return [batches_in(each) for each in found.values()]

    wait_until(
        lambda: all(each == contents()[0] for each in contents()),
        ANSWER_S_MAX,
        f"equal replicas of {name}",
    )
    assert contents()[0]
