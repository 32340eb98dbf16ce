"""The client of Spark's tasks over SASL_SSL, without Spark: source, sink and dead letters."""

import time

import pytest
from confluent_kafka import Producer
from tests.patience import SECONDS_MAX

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient
from ottla.protocol.types import TopicPartition
from ottla.security.sasl.credentials import LoginFailed
from ottla.spark.options import SinkOptions, SourceOptions
from ottla.tables.job import parse_job
from ottla.testing import run_node


@pytest.fixture(scope="module")
def node():
    # Sessions end soon: a client that lives longer has to log in again.
    with run_node(security="sasl_ssl", config={"connections.max.reauth.ms": 1500}) as running:
        producer = Producer(running.client_config)
        producer.produce("orders", b"1", partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        yield running


def options(node, **changed):
    """Options as a user of Spark's Kafka source has them."""
    java = {**node.java_config, **changed}
    return {f"kafka.{key}": value for key, value in java.items()}


def test_source_reads_over_sasl_ssl_and_logs_in_again(node):
    parsed = SourceOptions.parse({**options(node), "subscribe": "orders"})
    client = BrokerClient(parsed.client)
    partition = TopicPartition("orders", 0)
    try:
        assert client.list_offsets({partition: -1}, committed=True) == {partition: 1}
        with client.lend(1) as wire:
            first = wire._login_ends
            deadline = time.monotonic() + SECONDS_MAX
            while wire._login_ends == first:
                wire.ask(requests.metadata([]))
                assert time.monotonic() < deadline, "the session was not prolonged"
            assert first is not None and wire.is_open
    finally:
        client.close()


def test_replies_outstanding_at_a_login_are_kept_in_order(node):
    client = BrokerClient(SourceOptions.parse({**options(node), "subscribe": "orders"}).client)
    try:
        with client.lend(1) as wire:
            wire.post(requests.metadata([]))
            wire._login_ends = 0
            wire.post(requests.metadata(["orders"]))
            assert wire._login_ends > 0
            assert wire.take().topics == []
            assert [topic.name for topic in wire.take().topics] == ["orders"]
            assert wire.is_idle
    finally:
        client.close()


def test_sink_and_dead_letters_use_the_same_settings(node):
    sink = SinkOptions.parse({**options(node), "topic": "orders"})
    client = BrokerClient(sink.client)
    assert client.topic("orders").partitions == (0,)
    client.close()
    job = parse_job(
        {
            "topic": "orders",
            "bootstrap": node.bootstrap,
            "table": {"path": "t"},
            "dead_letters": "dead",
            "source": {**options(node), "maxOffsetsPerTrigger": 5},
        }
    )
    letters = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": job.bootstrap,
            **job.security_options,
            "topic": "dead",
        }
    )
    assert letters.client.properties == {
        key: value for key, value in node.java_config.items() if key != "bootstrap.servers"
    }


def test_secrets_are_in_no_text_and_a_wrong_password_fails_at_once(node):
    password = node.client_config["sasl.password"]
    parsed = SourceOptions.parse({**options(node), "subscribe": "orders"})
    job = parse_job({"topic": "o", "table": {"path": "t"}, "source": options(node)})
    assert password not in repr(parsed) + repr(job) + str(job)
    jaas = node.java_config["sasl.jaas.config"].replace(password, "wrong-giraffe")
    wrong = SourceOptions.parse({**options(node, **{"sasl.jaas.config": jaas}), "subscribe": "o"})
    client = BrokerClient(wrong.client)
    with pytest.raises(LoginFailed) as caught:
        client.topics(None)
    client.close()
    assert "giraffe" not in str(caught.value)
