"""TLS against PLAINTEXT: librdkafka produces to a node and consumes from it, over both.

The same for Apache Kafka where its jars and Java are there. Records are 10 KiB, so that the bytes
count and not the client's calls.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from cryptography.hazmat.primitives import serialization
from tests.free_ports import free_ports

from benchmarks.broker.brokers import Broker, Missing, kafka, ottla
from benchmarks.report import Row

RECORD = bytes(range(256)) * 40
RECORDS = 10_000
ROUNDS = 3
SECONDS_MAX = 30
KAFKA_RATIO_MIN = 1.2


def run() -> list[Row]:
    """Return rows on producing and consuming over TLS, against PLAINTEXT and against Kafka."""
    with tempfile.TemporaryDirectory(prefix="tls-") as name, ExitStack() as stack:
        found = []
        for make in (ottla, kafka):
            try:
                found.append(stack.enter_context(_broker(make, Path(name) / make.__name__)))
            except Missing as error:
                print(f"tls: {make.__name__} not measured, {error}", file=sys.stderr)
        rates = _rates(found)
    rows = []
    for what in ("produce", "consume"):
        for broker, _, _ in found:
            tls, plain = rates[broker.name, what, "tls"], rates[broker.name, what, "plain"]
            label = f"{what} over TLS, {broker.name}"
            rows.append(_row(label, tls, f"PLAINTEXT {plain:.0f} MB/s", tls / plain))
        if len(found) > 1:
            ours, theirs = (rates[broker.name, what, "tls"] for broker, _, _ in found)
            label, reference = f"{what} over TLS, against Kafka", f"Kafka {theirs:.0f} MB/s"
            rows.append(_row(label, ours, reference, ours / theirs, KAFKA_RATIO_MIN))
    return rows


def _row(label: str, rate: float, reference: str, ratio: float, ratio_min: float = 0) -> Row:
    target = f"at least {ratio_min}" if ratio_min else "shown"
    return Row("tls", label, f"{rate:.0f} MB/s", reference, ratio, target, ratio >= ratio_min)


def _rates(
    found: list[tuple[Broker, dict[str, Any], dict[str, Any]]],
) -> dict[tuple[str, str, str], float]:
    """Return MB/s by broker, work and protocol; all take turns in each round."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for number in range(ROUNDS + 1):  # the first warms up
        for broker, plain, secure in found:
            for protocol, settings in (("plain", plain), ("tls", secure)):
                topic = f"{protocol}-{number}"
                for what, work in (("produce", _produce), ("consume", _consume)):
                    taken = work(settings, topic)
                    if number:
                        times.setdefault((broker.name, what, protocol), []).append(taken)
    megabytes = RECORDS * len(RECORD) / 1e6
    return {key: megabytes / median(taken) for key, taken in times.items()}


@contextmanager
def _broker(
    make: Callable[[Path], Broker], root: Path
) -> Iterator[tuple[Broker, dict[str, Any], dict[str, Any]]]:
    """Run a broker with a second listener; yield it and the settings of clients of both."""
    authority = trustme.CA()
    root.mkdir()
    trust, store = root / "ca.pem", root / "node.pem"
    trust.write_bytes(authority.cert_pem.bytes())
    leaf = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    # Kafka reads only PKCS#8.
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    store.write_bytes(key + b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    broker = make(root / "node")
    port = free_ports(1)[0]
    settings = broker.root / "server.properties"
    lines = [
        line + f",TLS://127.0.0.1:{port}" if line.startswith("listeners=") else line
        for line in settings.read_text().splitlines()
    ]
    lines += [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
    ]
    settings.write_text("\n".join(lines) + "\n")
    broker.format()
    broker.start()
    plain = {"bootstrap.servers": broker.bootstrap}
    secure = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(trust),
    }
    try:
        yield broker, plain, secure
    finally:
        broker.stop()


def _produce(settings: dict[str, Any], topic: str) -> float:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS_MAX)
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": RECORDS})
    producer.list_topics(topic, timeout=SECONDS_MAX)
    began = perf_counter()
    for _ in range(RECORDS):
        producer.produce(topic, RECORD, partition=0)
    if producer.flush(SECONDS_MAX):
        raise RuntimeError(f"{topic}: not all records were acknowledged")
    return perf_counter() - began


def _consume(settings: dict[str, Any], topic: str) -> float:
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = RECORDS - len(consumer.consume(1, SECONDS_MAX))
        began = perf_counter()
        while left > 0:
            found = consumer.consume(min(500, left), SECONDS_MAX)
            if not found:
                raise RuntimeError(f"{topic}: {left} records did not arrive")
            left -= len(found)
        return perf_counter() - began
    finally:
        consumer.close()
