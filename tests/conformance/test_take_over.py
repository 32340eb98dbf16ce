"""A directory changes hands: we open what Apache Kafka wrote and add to it, and Kafka goes on."""

import re
from pathlib import Path

import pytest

from ottla.protocol.records.batch import Compression, batches
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts
from ottla.storage.log import producer_snapshot_format
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.jvm

PEER = str(Path(__file__).parent / "KafkaPeer.java")
TOPIC = TopicPartition("peer", 0)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OURS = 100


def open_directory(path: Path) -> tuple[LogDirectory, Log]:
    ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
    directory = LogDirectory.open(ports, str(path), node_id=NodeId(1), cluster_id=None)
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=512)
    report = directory.open_all(lambda _: config)
    assert (report.failed, report.corrupt_checkpoints) == ({}, [])
    return directory, directory.logs[TOPIC].log


def read_all(log: Log, *, is_committed_only: bool) -> list[tuple[int, str]]:
    """Read as a consumer would: by slices, aborted transactions left out if asked."""
    aborted = log.collect_aborted(log.log_start_offset, log.log_end_offset)
    found: list[tuple[int, str]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 16, upto=log.log_end_offset)
        data = piece.file.pread(piece.length, piece.position)
        for position, header in batches(data):
            offset = header.next_offset
            is_aborted = any(
                txn.producer_id == header.producer_id
                and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            )
            if header.is_control or (is_committed_only and is_aborted and header.is_transactional):
                continue
            found += [(r.offset, (r.key or b"").decode()) for r in read_records(data, position)]
    return found


def consumed(broker, isolation: str) -> list[tuple[int, str]]:
    out = broker.kafka.run(PEER, "read", broker.address, TOPIC.topic, isolation)
    return [(int(o), key) for o, key in re.findall(r"^(\d+)\|([^|]*)\|", out, re.M)]


def append_ours(log: Log) -> None:
    """Add batches of every codec, and a committed and an aborted transaction."""
    now = SystemClock().now()
    epoch = LeaderEpoch(max(log.epochs.latest_epoch or 0, 0))
    for turn in range(OURS):
        records = [Record(Offset(0), now, f"ottla-{turn}".encode(), b"from us", ())]
        batch = build_batch(records, compression=list(Compression)[turn % 5])
        log.append_as_leader(batch, leader_epoch=epoch, now=now)
    for turn, is_commit in enumerate((True, False)):
        producer = Producer(id=900_000, epoch=turn, base_sequence=0)
        word = "committed" if is_commit else "aborted"
        records = [Record(Offset(0), now, f"ottla-{word}".encode(), b"from us", ())]
        batch = build_batch(records, producer=producer, is_transactional=True)
        log.append_as_leader(batch, leader_epoch=epoch, now=now)
        marker = build_end_txn_marker(EndTxnMarker(is_commit, 0), producer, Millis(now))
        log.append_as_leader(marker, leader_epoch=epoch, now=now, from_client=False)
    log.set_high_watermark(log.log_end_offset)


def test_a_directory_goes_from_kafka_to_us_and_back(broker) -> None:
    broker.start()
    broker.kafka.run(PEER, "write", broker.address, TOPIC.topic)
    by_kafka = {level: consumed(broker, level) for level in ("read_uncommitted", "read_committed")}
    assert len(by_kafka["read_uncommitted"]) == len(CODECS) * 2000 + 6 * 20
    assert len(by_kafka["read_committed"]) == len(CODECS) * 2000 + 3 * 20
    broker.stop()

    directory, log = open_directory(broker.data)
    assert directory.last_shutdown is not None, "Kafka's clean-shutdown marker was seen"
    assert not log.report.is_loss and log.report.segments_checked == []
    assert len(log.segments) > 1
    assert read_all(log, is_committed_only=False) == by_kafka["read_uncommitted"]
    assert read_all(log, is_committed_only=True) == by_kafka["read_committed"]
    append_ours(log)
    directory.close()

    broker.start()
    for level, before in by_kafka.items():
        after = consumed(broker, level)
        assert after[: len(before)] == before
        added = [key for _, key in after[len(before) :]]
        ends = ["ottla-committed"] + ["ottla-aborted"] * (level == "read_uncommitted")
        assert added == [f"ottla-{turn}" for turn in range(OURS)] + ends
    broker.stop()
    complaints = [
        line
        for line in broker.log.read_text().splitlines()
        if re.search(r"corrupt|rebuild|unclean|truncat", line, re.I) and TOPIC.topic in line
    ]
    assert complaints == []


def test_a_directory_that_kafka_left_uncleanly_is_recovered(broker) -> None:
    broker.start()
    broker.kafka.run(PEER, "write", broker.address, TOPIC.topic)
    by_kafka = consumed(broker, "read_committed")
    broker.stop(9)

    directory, log = open_directory(broker.data)
    assert directory.last_shutdown is None
    assert log.report.segments_checked != [] and not log.report.is_loss
    assert read_all(log, is_committed_only=True) == by_kafka
    directory.close()


def test_kafkas_producer_snapshot_is_ours_to_the_byte(broker) -> None:
    broker.start()
    broker.kafka.run(PEER, "write", broker.address, TOPIC.topic)
    broker.stop()
    files = sorted((broker.data / "peer-0").glob("*.snapshot"))
    assert files
    for file in files:
        data = file.read_bytes()
        assert producer_snapshot_format.encode(producer_snapshot_format.decode(data)) == data
