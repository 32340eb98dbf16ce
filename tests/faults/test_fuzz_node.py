"""Mutated requests, recorded from real clients or generated, against a running node (row 28).

Every API and version of a listener is used. The node closes the connection or answers, never
reports an unexpected error, continues to serve others, and uses no more memory.

    FUZZ=100000 FUZZ_SEED=7 python -m pytest tests/faults/test_fuzz_node.py      (or `make crash`)
"""

import os
import random
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bad_frames import framed, metadata
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from loaded import resident_kib
from raw_client import RawClient
from recorder import Recorder
from tests.fuzz.mutations import mutated
from tests.fuzz.samples import sample
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import request_class
from ottla.testing import Cluster, run_node

FUZZ = int(os.environ.get("FUZZ", "3000"))
SEED = int(os.environ.get("FUZZ_SEED", "28"))
PROBE_EVERY = 200
SAMPLES = 12  # generated, of each API and version
ANSWER_S_MAX = 0.02  # a request that waits is abandoned
RSS_GROWTH_KIB_MAX = 48 * 1024
HEADER_BYTES = 8  # api key, version, correlation id: mostly kept, or the request is rejected early

Corpus = dict[tuple[int, int], list[bytes]]


@contextmanager
def recorded_node(directory: Path) -> Iterator[tuple[Cluster, Recorder]]:
    """A node that advertises the recorder's address."""
    recorder = Recorder()
    try:
        config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{recorder.port}"}
        with run_node(processes=True, directory=directory, config=config) as cluster:
            host, port = cluster.bootstrap.rsplit(":", 1)
            recorder.target = (host, int(port))
            yield cluster, recorder
    finally:
        recorder.close()


def use(bootstrap: str) -> None:
    """Use the node as librdkafka clients do."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic("real", 2, 1)]).values():
        each.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(50):
        producer.produce("real", b"v" * number, key=str(number))
    producer.flush(SECONDS_MAX)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "one", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["real"])
    while not consumer.consume(10, 1):
        pass
    consumer.commit(asynchronous=False)
    consumer.close()
    admin.list_topics(timeout=SECONDS_MAX)
    admin.list_consumer_groups().result(SECONDS_MAX)


def use_another(bootstrap: str) -> None:
    """The same with kafka-python, which uses other versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings do not matter here
        from kafka import KafkaConsumer, KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        producer.send("real", b"value").get(20)
        producer.close()
        reader = KafkaConsumer(
            "real", bootstrap_servers=bootstrap, group_id="two", auto_offset_reset="earliest"
        )
        next(iter(reader))
        reader.commit()
        reader.close()


def corpus_of(recorder: Recorder, listener: Listener, rng: random.Random) -> Corpus:
    """Return the recorded requests, and generated ones where none were recorded."""
    corpus: Corpus = {}
    for key in APIS:
        if listener not in APIS[key].listeners:
            continue
        first, last = APIS[key].versions
        for version in range(first, last + 1):
            frames = list(recorder.frames.get((key, version), ()))
            for _ in range(SAMPLES):
                header = RequestHeader(ApiKey(key), version, 1, "fuzz")
                body = sample(request_class(ApiKey(key)), version, rng)
                frames.append(bytes(request_frame(header, body))[4:])
            corpus[key, version] = frames
    return corpus


def damaged(frame: bytes, other: bytes, rng: random.Random) -> bytes:
    """Mutate a frame in a random way; some stay valid, with meaningless content."""
    kind = rng.random()
    if kind < 0.3:
        return frame
    if kind < 0.4:
        return mutated(frame, rng, other)
    return frame[:HEADER_BYTES] + mutated(frame[HEADER_BYTES:], rng, other)


class Fuzzer:
    """Send frames on a connection until it is closed or one waits, then on the next."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client: RawClient | None = None
        self.answered = self.closed = self.parked = 0

    def send(self, payload: bytes) -> None:
        if self.client is None:
            self.client = RawClient(self.bootstrap)
        self.client.sock.settimeout(ANSWER_S_MAX)
        try:
            self.client.send_bytes(framed(payload))
            self.client.frame()
            self.answered += 1
        except TimeoutError:
            self.parked += 1
            self.drop()
        except ConnectionError:
            self.closed += 1
            self.drop()

    def drop(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None


def probe(bootstrap: str) -> None:
    """Check that another client is served in time."""
    began = time.monotonic()
    with RawClient.to(bootstrap) as client:
        client.send_bytes(metadata(2))
        assert client.frame()[:4] == struct.pack(">i", 2)
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.timeout(600 + FUZZ // 50)
@pytest.mark.parametrize("listener", [Listener.BROKER, Listener.CONTROLLER])
def test_mutated_requests_leave_the_node_healthy(tmp_path: Path, listener: Listener) -> None:
    rng = random.Random(SEED)
    with recorded_node(tmp_path / "node") as (cluster, recorder):
        use(cluster.bootstrap)
        use_another(cluster.bootstrap)
        seen = len(recorder.frames)
        assert seen > 15, "real frames of real clients"
        corpus = corpus_of(recorder, listener, rng)
        process_id, before = cluster.process_id(1), 0
        assert process_id is not None
        at = {Listener.BROKER: cluster.bootstrap}.get(listener, cluster.bootstrap_controllers)
        fuzzer, places = Fuzzer(at), sorted(corpus)
        for number in range(FUZZ):
            place = places[number % len(places)]
            other = rng.choice(corpus[rng.choice(places)])
            fuzzer.send(damaged(rng.choice(corpus[place]), other, rng))
            if number % PROBE_EVERY == 0:
                probe(cluster.bootstrap)
            if number == FUZZ // 3:
                before = resident_kib(process_id)
        fuzzer.drop()
        grown = resident_kib(process_id) - before
        print(
            f"{FUZZ} frames of {len(places)} APIs and versions, {seen} of them recorded:"
            f" {fuzzer.answered} answered, {fuzzer.closed} closed, {fuzzer.parked} parked;"
            f" RSS {before} KiB +{grown}"
        )
        said = cluster.output(1)
        assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:4000]
        assert cluster.process_id(1) == process_id
        assert grown < RSS_GROWTH_KIB_MAX
        assert fuzzer.closed > FUZZ // 20 and fuzzer.answered > FUZZ // 20
        probe(cluster.bootstrap)
