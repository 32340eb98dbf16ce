"""Other ways to remote segments: share groups, moved replicas, secured clusters, damaged caches."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from one_node import OneNode, ask, format_one, one_node
from secure_node import SecureNode
from share_members import ACCEPT, Member, Wire, acquired, configure, rows
from share_members import values as values_of
from tests.patience import SECONDS_MAX
from tier_node import TIERED, consume, create, log_of, objects, produce, tier_settings, until

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest


def values(count: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number, b"%06d" % number + b"x" * 150) for number in range(start, count)]


def tiered(node: OneNode) -> None:
    """Wait until all sealed segments are only in the tier."""
    until(lambda: len(log_of(node).segments) == 1 and log_of(node).local_log_start_offset > 0)


def test_share_group_reads_from_offset_0_across_the_border(tmp_path: Path) -> None:
    extra = (
        "offsets.topic.num.partitions=1",
        "offsets.topic.replication.factor=1",
        "share.coordinator.state.topic.num.partitions=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
    )
    with one_node(tier_settings(tmp_path, *extra)) as node:
        create(node)
        produce(node, 0, 120)
        tiered(node)
        wire = Wire(str(node.address))
        until(lambda: wire.ask(FindCoordinatorRequest("g", 0), 3).error_code == 0)
        configure(wire, "g", share_auto_offset_reset="earliest")
        member = Member(wire, "g", "t").join()
        found: list[bytes] = []
        acks: list[tuple[int, int, int]] = []
        while len(found) < 120:
            reply = member.fetch(acks, records=35)
            assert all(row.error_code == ErrorCode.NONE for row in rows(reply))
            got = acquired(reply)
            found += [
                value
                for value in values_of(reply)
                if any(first <= int(value[:6]) <= last for first, last, _ in got)
            ]
            acks = [(first, last, ACCEPT) for first, last, _ in got]
        assert found == [value for _, value in values(120)]
        wire.close()


def test_moved_replica_still_reads_what_is_in_the_tier(tmp_path: Path) -> None:
    dirs = f"log.dirs={tmp_path / 'data'},{tmp_path / 'other'}"
    with one_node(tier_settings(tmp_path, dirs)) as node:
        create(node)
        produce(node, 0, 120)
        tiered(node)
        here = Path(log_of(node).directory).parent
        there = tmp_path / ("other" if here.name == "data" else "data")
        topics = [AlterReplicaLogDirTopic("t", [0])]
        ask(node, AlterReplicaLogDirsRequest([AlterReplicaLogDir(str(there), topics)]))
        until(lambda: Path(log_of(node).directory).parent == there)
        assert log_of(node).log_start_offset == 0
        assert consume(node) == values(120)
        before = len(objects(tmp_path))
        produce(node, 120, 80)
        until(lambda: len(objects(tmp_path)) > before)
        tiered(node)
        assert consume(node) == values(200)


def test_metadata_client_logs_in_to_a_secured_cluster(tmp_path: Path) -> None:
    """Brokers talk to each other by SASL_SSL here, and so does the client of the metadata topic."""
    secure = SecureNode(
        tmp_path,
        (
            "remote.log.storage.system.enable=true",
            "remote.log.storage.manager.class.name=directory",
            f"rsm.config.directory={tmp_path / 'tier'}",
            "remote.log.manager.task.interval.ms=50",
            "log.retention.check.interval.ms=50",
            "log.initial.task.delay.ms=0",
            "rlmm.config.remote.log.metadata.topic.replication.factor=1",
            "rlmm.config.remote.log.metadata.topic.num.partitions=2",
        ),
    )
    node = secure.start()
    try:
        at = {"bootstrap.servers": secure.bootstrap("OPEN")}
        admin = AdminClient(at)
        admin.create_topics([NewTopic("t", 1, 1, config=TIERED)])["t"].result(SECONDS_MAX)
        producer = Producer(at)
        for number in range(60):
            producer.produce("t", b"%06d" % number + b"x" * 300, partition=0)
            assert producer.flush(SECONDS_MAX) == 0
        tiered(node)
        consumer = Consumer(at | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", 0, 0)])
        read = [message.value()[:6] for message in consumer.consume(60, 60)]
        assert read == [b"%06d" % number for number in range(60)]
        consumer.close()
    finally:
        node.stop()


def test_damaged_snapshot_of_the_metadata_is_read_again_from_the_topic(tmp_path: Path) -> None:
    settings = format_one(tier_settings(tmp_path, metadata="topic"))
    snapshots = tmp_path / "data" / "remote-log-metadata"
    node = OneNode(settings)
    try:
        create(node)
        produce(node, 0, 80)
        tiered(node)
        until(lambda: list(snapshots.glob("*.snapshot")))
    finally:
        node.stop()
    stored = objects(tmp_path)
    for path in snapshots.glob("*.snapshot"):
        data = path.read_bytes()
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    node = OneNode(settings)
    try:
        assert consume(node) == values(80)
        assert objects(tmp_path) == stored
    finally:
        node.stop()
