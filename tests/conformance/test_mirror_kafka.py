"""``ottla mirror`` between Apache Kafka and a node, in both directions."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.mirror_processes import Load, assert_equal, create_topics, kill_repeatedly
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.cluster import Cluster
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.service import MirrorOptions, open_mirror
from ottla.testing import run_node

pytestmark = pytest.mark.jvm

GROUP = "readers"
SECONDS_MAX = 60.0
Found = list[tuple[int, bytes | None, bytes | None, object, tuple[int, int]]]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[str]:
    with run_node(directory=tmp_path / "ottla") as node:
        yield node.bootstrap


def write(bootstrap: str) -> None:
    """Write a plain topic of every codec, one that begins late, and one with transactions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1) for name in ("plain", "late", "txns")]
    topics[0].config = {"retention.ms": "7654321000"}
    for future in admin.create_topics(topics).values():
        future.result(SECONDS_MAX)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(400):
            for topic in ("plain", "late"):
                producer.produce(
                    topic,
                    b"v%d" % number * 5,
                    key=codec,
                    headers=[("n", b"%d" % number)],
                    timestamp=1_700_000_000_000 + number,
                )
        producer.flush(SECONDS_MAX)
    for future in admin.delete_records([TopicPartition("late", 0, 1500)]).values():
        future.result(SECONDS_MAX)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    writer.init_transactions(SECONDS_MAX)
    for turn in range(10):
        writer.begin_transaction()
        for number in range(20):
            writer.produce("txns", b"%d-%d" % (turn, number))
        if turn % 3:
            writer.commit_transaction(SECONDS_MAX)
        else:
            writer.abort_transaction(SECONDS_MAX)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    offsets = [TopicPartition("plain", 0, 700), TopicPartition("txns", 0, 50)]
    reader.commit(offsets=offsets, asynchronous=False)
    reader.close()


def read(bootstrap: str, topic: str, offset: int = -2) -> Found:
    """Return what a read_committed consumer finds from an offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: Found = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error():
                return found
            found.append(
                (
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers(),
                    message.timestamp(),
                )
            )
    finally:
        consumer.close()


def committed(bootstrap: str) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        asked = [TopicPartition(name, 0) for name in ("plain", "txns")]
        return {each.topic: each.offset for each in consumer.committed(asked, SECONDS_MAX)}
    finally:
        consumer.close()


async def switch_over(source: str, target: str) -> None:
    options = MirrorOptions(topics=re.compile(".*"), refresh_s=0.2, replication_factor=1)
    ports = client_ports()
    async with (
        await Cluster.open(ports, parse_bootstrap(source)) as one,
        await Cluster.open(ports, parse_bootstrap(target)) as other,
    ):
        for _ in range(3):  # interrupted twice, wherever it is
            mirror = await open_mirror(Clusters(one, other), options)
            running = asyncio.ensure_future(mirror.run(lambda _: None))
            await asyncio.wait([running], timeout=0.5)
            running.cancel()
            await asyncio.wait([running])
        mirror = await open_mirror(Clusters(one, other), options)
        behind = await mirror.switch_over(lambda _: None, quiet_s=0.5, timeout_s=SECONDS_MAX)
        assert (behind, mirror.problems) == ([], {})


def check(source: str, target: str) -> None:
    write(source)
    asyncio.run(switch_over(source, target))
    for topic in ("plain", "late"):
        found = read(target, topic)
        assert found == read(source, topic), "the same records at the same offsets"
        assert found[0][0] == (1500 if topic == "late" else 0)
    theirs, ours = read(source, "txns"), read(target, "txns")
    assert [each[1:] for each in ours] == [each[1:] for each in theirs] and len(ours) == 120
    # The group goes on with the same record.
    assert committed(target)["plain"] == 700
    begun = read(target, "txns", committed(target)["txns"])
    assert begun[0][2] == read(source, "txns", 50)[0][2]


def test_kafka_is_mirrored_to_a_node(broker, ours: str) -> None:
    broker.start()
    check(broker.address, ours)
    broker.stop()


def test_node_is_mirrored_to_kafka(broker, ours: str) -> None:
    broker.start()
    check(ours, broker.address)
    broker.stop()


KILLS = 10


def check_with_kills(source: str, target: str, directory: Path) -> None:
    """Mirror with a process that is killed again and again while the source is written."""
    files = []
    for option, address in (("--from", source), ("--to", target)):
        path = directory / f"{option[2:]}.properties"
        path.write_text(f"bootstrap.servers={address}\n")
        files += [option, str(path)]
    theirs, ours = {"bootstrap.servers": source}, {"bootstrap.servers": target}
    create_topics(theirs)
    load = Load(theirs, seed=1)
    try:
        run = ["run", *files, "--refresh", "0.5", "--replication-factor", "1"]
        kill_repeatedly(run, directory, ours, KILLS, seed=1)
    finally:
        written = load.stop()
    done = CliRunner().invoke(app, ["mirror", "switch-over", *files, "--quiet", "0.5"])
    assert done.exit_code == 0, done.output
    assert_equal(theirs, ours, written)


def test_killed_mirror_copies_kafka_exactly_once(broker, ours: str, tmp_path: Path) -> None:
    broker.start()
    check_with_kills(broker.address, ours, tmp_path)
    broker.stop()


def test_killed_mirror_copies_to_kafka_exactly_once(broker, ours: str, tmp_path: Path) -> None:
    broker.start()
    check_with_kills(ours, broker.address, tmp_path)
    broker.stop()
