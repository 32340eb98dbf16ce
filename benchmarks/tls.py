"""TLS against PLAINTEXT: librdkafka produces to a node and consumes from it, over both.

The same for Apache Kafka. Records are 10 KiB, so that the bytes count and not the client's calls.
"""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.broker.brokers import on_client_core
from benchmarks.report import REPORTED, Figures, Row, at_least, megabytes_per_second
from benchmarks.throughput import warm_up
from benchmarks.warm import Bench, Pair, Side

AREA = "tls"
RECORD = bytes(range(256)) * 40
RECORDS = 40_000
SECONDS_MAX = 60
KAFKA_RATIO_MIN = 1.2
Rates = dict[tuple[str, str], Figures]
"""Bytes per second, by work (produce, consume) and protocol (plain, tls)."""


def run(bench: Bench) -> Iterator[Row]:
    """Yield rows on producing and consuming over TLS, against PLAINTEXT and against Kafka."""
    pair = bench.nodes()
    warm_up(pair, 1024)
    count = bench.effort.of(RECORDS)

    def serve(side: Side) -> float:
        _turn(side, "tls", count)
        return count * len(RECORD)

    pair.warm_up("TLS", serve)
    rates = _rates(pair, count)
    for what in ("produce", "consume"):
        tls, plain = rates[what, "tls"], rates[what, "plain"]
        target = at_least(KAFKA_RATIO_MIN)
        label = f"{what} over TLS"
        yield tls.row(AREA, f"{label}, against Kafka", megabytes_per_second, target)
        yield _against_plain(f"{label}, Ottla", tls.ours, plain.ours)
        yield _against_plain(f"{label}, Kafka", tls.theirs, plain.theirs)


def _against_plain(what: str, tls: list[float], plain: list[float]) -> Row:
    row = Figures(tls, plain).row(AREA, what, megabytes_per_second, REPORTED)
    return replace(row, reference=row.reference.replace("Kafka,", "PLAINTEXT,"))


def _rates(pair: Pair, count: int) -> Rates:
    rates: Rates = {}
    for side in pair.turns(pair.effort.rounds):
        for protocol in ("plain", "tls"):
            for what, rate in _turn(side, protocol, count).items():
                rates.setdefault((what, protocol), Figures()).add(side.name, rate)
    return rates


def _turn(side: Side, protocol: str, count: int) -> dict[str, float]:
    """Produce and consume; return the bytes per second of both."""
    settings: dict[str, Any] = {"bootstrap.servers": side.bootstrap}
    if protocol == "tls":
        assert side.credentials is not None
        settings = {
            "bootstrap.servers": side.credentials.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": side.credentials.trusted,
        }
    size = count * len(RECORD)
    with side.topic() as topic, on_client_core():
        return {
            "produce": size / _produce(settings, topic, count),
            "consume": size / _consume(settings, topic, count),
        }


def _produce(settings: dict[str, Any], topic: str, count: int) -> float:
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.kbytes": 1 << 20})
    producer.list_topics(topic, timeout=SECONDS_MAX)
    began = perf_counter()
    for _ in range(count):
        producer.produce(topic, RECORD, partition=0)
    if producer.flush(SECONDS_MAX):
        raise RuntimeError(f"{topic}: not all records were acknowledged")
    return perf_counter() - began


def _consume(settings: dict[str, Any], topic: str, count: int) -> float:
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count - len(consumer.consume(1, SECONDS_MAX))
        began = perf_counter()
        while left > 0:
            found = consumer.consume(min(500, left), SECONDS_MAX)
            if not found:
                raise RuntimeError(f"{topic}: {left} records did not arrive")
            left -= len(found)
        return perf_counter() - began
    finally:
        consumer.close()
