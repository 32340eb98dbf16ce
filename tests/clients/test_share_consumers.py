"""librdkafka's share consumer against a node: implicit, explicit, and two of which one goes."""

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node

NUMBERS = itertools.count()
PARTITIONS, EACH = 2, 150
TOTAL = PARTITIONS * EACH


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture
def topic(node: Cluster) -> str:
    name = f"queue-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(TOTAL):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    return name


@pytest.fixture
def group(node: Cluster) -> str:
    """A group that begins at the earliest record."""
    name = f"group-{next(NUMBERS)}"
    ottla(node, "config", "set", "group", name, "share.auto.offset.reset=earliest")
    return name


def ottla(node: Cluster, *arguments: str) -> list[dict[str, Any]]:
    environment = {"OTTLA_BOOTSTRAP": node.bootstrap}
    done = CliRunner().invoke(app, [*arguments, "-o", "json"], env=environment)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def consumer(node: Cluster, group: str, topic: str, mode: str) -> ShareConsumer:
    found = ShareConsumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
        }
    )
    found.subscribe([topic])
    return found


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "never came true"


def read(source: ShareConsumer) -> list[Message]:
    found = list(source.poll(0.5))
    assert all(message.error() is None for message in found)
    return found


def starts(node: Cluster, group: str) -> list[int]:
    return [row["start"] for row in ottla(node, "share", "offsets", group)]


def test_all_records_are_read_once(node: Cluster, group: str, topic: str) -> None:
    seen: Counter[bytes | None] = Counter()
    source = consumer(node, group, topic, "implicit")

    def is_enough() -> bool:
        seen.update(message.value() for message in read(source))
        return len(seen) >= TOTAL

    until(is_enough)
    assert not any(source.commit_sync(SECONDS_MAX).values()), "which accepts what was polled last"
    source.close()
    assert set(seen.values()) == {1}
    assert starts(node, group) == [EACH] * PARTITIONS


def test_each_record_is_acknowledged_by_itself(node: Cluster, group: str, topic: str) -> None:
    """Every third is released the first time, every seventh rejected."""
    ended: Counter[tuple[int, int]] = Counter()
    deliveries: Counter[tuple[int, int]] = Counter()
    source = consumer(node, group, topic, "explicit")

    def is_enough() -> bool:
        for message in read(source):
            place = (message.partition(), message.offset())
            deliveries[place] += 1
            kind = AcknowledgeType.ACCEPT
            if place[1] % 7 == 0:
                kind = AcknowledgeType.REJECT
            elif place[1] % 3 == 0 and deliveries[place] == 1:
                kind = AcknowledgeType.RELEASE
            source.acknowledge(message, kind)
            if kind is not AcknowledgeType.RELEASE:
                ended[place] += 1
        assert not any(source.commit_sync(SECONDS_MAX).values())
        return len(ended) >= TOTAL

    until(is_enough)
    source.close()
    assert set(ended.values()) == {1}
    wanted = {place: 2 if place[1] % 3 == 0 and place[1] % 7 else 1 for place in ended}
    assert deliveries == wanted
    assert starts(node, group) == [EACH] * PARTITIONS


def test_two_consumers_share_and_one_takes_over(node: Cluster, group: str, topic: str) -> None:
    first = consumer(node, group, topic, "explicit")
    second = consumer(node, group, topic, "explicit")
    accepted: Counter[tuple[int, int]] = Counter()
    held: list[Message] = []

    def is_held() -> bool:
        held.extend(read(first))
        return bool(held)

    until(is_held)
    first.close()  # without a word about what it has

    def is_enough() -> bool:
        for message in read(second):
            second.acknowledge(message)
            accepted[(message.partition(), message.offset())] += 1
        assert not any(second.commit_sync(SECONDS_MAX).values())
        return len(accepted) >= TOTAL

    until(is_enough)
    second.close()
    assert set(accepted.values()) == {1}
    assert {(each.partition(), each.offset()) for each in held} <= set(accepted)
