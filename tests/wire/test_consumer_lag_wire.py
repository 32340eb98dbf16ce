"""The lag of groups of several kinds in /metrics, with real clients."""

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from one_node import OneNode, one_node, settings
from tests.patience import SECONDS_MAX


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OneNode]:
    loaded = settings(
        tmp_path,
        "ottla.metrics.listener=127.0.0.1:0",
        "ottla.consumer.lag.interval.ms=50",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
    )
    with one_node(loaded) as running:
        yield running


def wait_for_line(node: OneNode, line: str) -> str:
    at = node.node.metrics_addr
    assert at is not None
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{at.port}/metrics", timeout=SECONDS_MAX
        ) as reply:
            page = str(reply.read().decode())
        if line in page.splitlines():
            return page
        assert time.monotonic() < deadline, [
            each for each in page.splitlines() if "consumergroup" in each
        ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_lag_of_a_group_is_what_it_has_not_committed(node: OneNode, protocol: str) -> None:
    at = {"bootstrap.servers": str(node.address)}
    producer = Producer(at)
    for number in range(10):
        producer.produce("t", str(number).encode(), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    settings = {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False}
    consumer = Consumer(at | settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.poll(30) is not None
    consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    where = 'consumergroup="g",topic="t",partition="0"'
    page = wait_for_line(node, f"kafka_consumergroup_lag{{{where}}} 6")
    assert f"kafka_consumergroup_current_offset{{{where}}} 4" in page
    assert 'kafka_consumergroup_members{consumergroup="g"} 1' in page
    assert f'ottla_consumergroup_type{{consumergroup="g",type="{protocol}"}} 1' in page
    consumer.commit(offsets=[TopicPartition("t", 0, 10)], asynchronous=False)
    wait_for_line(node, f"kafka_consumergroup_lag{{{where}}} 0")
    consumer.close()


def test_open_transaction_counts_as_lag_but_not_as_stable_lag(node: OneNode) -> None:
    at = {"bootstrap.servers": str(node.address)}
    plain = Producer(at)
    plain.produce("t", b"x", partition=0)
    assert plain.flush(SECONDS_MAX) == 0
    consumer = Consumer(at | {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.poll(30) is not None
    consumer.committed([TopicPartition("t", 0)], 30)  # waits for the coordinator
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    transactional = Producer(at | {"transactional.id": "open"})
    transactional.init_transactions(SECONDS_MAX)
    transactional.begin_transaction()
    transactional.produce("t", b"y", partition=0)
    assert transactional.flush(SECONDS_MAX) == 0
    where = 'consumergroup="g",topic="t",partition="0"'
    page = wait_for_line(node, f"kafka_consumergroup_lag{{{where}}} 2")
    assert f"ottla_consumergroup_stable_lag{{{where}}} 1" in page
    transactional.abort_transaction(SECONDS_MAX)
    consumer.close()
