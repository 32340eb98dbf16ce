"""One node's directories, written by Apache Kafka and Ottla in turn."""

import re

from confluent_kafka import Consumer, TopicPartition
from tests.mixed.clients import ANSWER_S_MAX, Clients, partition_dirs
from tests.mixed.cluster import MixedCluster, run_tool, wait_until
from tests.mixed.kinds import OTTLA, TARGET, Kind
from tests.nemesis.load import LOGGER

COMPACTING = {"log.cleaner.backoff.ms": "300", "log.segment.delete.delay.ms": "1000"}
KEYS, VALUES = 50, 40
GROUP = "keeper"
PLAIN, COMPACTED, TRANSACTIONAL = "plain", "compacted", "transactional"
COMPLAINTS = re.compile(r" (WARN|WARNING|ERROR) .*(corrupt|rebuild)", re.IGNORECASE)


def hand_over(cluster: MixedCluster, theirs: Kind) -> None:
    """Kafka -> Ottla -> Kafka, each once stopped and once killed; all of it is read each time."""
    clients = Clients(cluster)
    clients.create(PLAIN, replicas=1)
    clients.create(TRANSACTIONAL, replicas=1)
    clients.create(
        COMPACTED, replicas=1, cleanup_policy="compact", segment_ms="500",
        min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1000",
    )  # fmt: skip
    turn = 0
    _write(clients, turn)
    for kind, is_kill in ((OTTLA, False), (theirs, False), (OTTLA, True), (theirs, True)):
        cluster.replace(1, kind, kill=is_kill)
        cluster.wait_whole()
        _check(cluster, clients, turn)
        turn += 1
        _write(clients, turn)
        _check(cluster, clients, turn)
    wait_until(lambda: _is_compacted(cluster), ANSWER_S_MAX, "the compaction")
    cluster.stop(1)
    _dump(cluster)
    complaints = [line for line in cluster.output(1).splitlines() if COMPLAINTS.search(line)]
    assert complaints == []


def _write(clients: Clients, turn: int) -> None:
    clients.write(PLAIN, [f"{turn}:{each}" for each in range(500)], compression_type=_codec(turn))
    producer = clients.producer()
    for value in range(VALUES):
        for key in range(KEYS):
            producer.produce(COMPACTED, f"{turn}:{value}".encode(), f"key-{key}".encode())
        producer.poll(0)
    assert producer.flush(ANSWER_S_MAX) == 0
    # A transactional id of every turn, and one that all of them use.
    clients.transaction(f"txn-{turn}", TRANSACTIONAL, [f"{turn}:kept"], commit=True)
    clients.transaction("txn", TRANSACTIONAL, [f"{turn}:dropped"], commit=False)
    clients.transaction("txn", TRANSACTIONAL, [f"{turn}:kept again"], commit=True)
    _committer(clients).commit(
        offsets=[TopicPartition(PLAIN, 0, 500 * turn + 7)], asynchronous=False
    )


def _codec(turn: int) -> str:
    return ("none", "gzip", "snappy", "lz4", "zstd")[turn % 5]


def _committer(clients: Clients) -> Consumer:
    settings = {"bootstrap.servers": clients.cluster.bootstrap, "group.id": GROUP}
    return Consumer(settings | {"enable.auto.commit": False}, logger=LOGGER)


def _check(cluster: MixedCluster, clients: Clients, turn: int) -> None:
    turns = range(turn + 1)
    assert clients.read(PLAIN) == [f"{each}:{number}" for each in turns for number in range(500)]
    kept = [f"{each}:kept{again}" for each in turns for again in ("", " again")]
    assert clients.read(TRANSACTIONAL) == kept
    everything = clients.read(TRANSACTIONAL, "read_uncommitted")
    assert len(everything) == 3 * len(turns)
    newest = clients.read(COMPACTED)[-KEYS:]
    assert newest == [f"{turn}:{VALUES - 1}"] * KEYS
    (found,) = _committer(clients).committed([TopicPartition(PLAIN, 0)], ANSWER_S_MAX)
    assert found.offset == 500 * turn + 7


def _is_compacted(cluster: MixedCluster) -> bool:
    """Return whether all turns but the last, which is in the active segment, are compacted."""
    return len(Clients(cluster).read(COMPACTED)) < 2 * KEYS * VALUES


def _dump(cluster: MixedCluster) -> None:
    """Read every segment, index and snapshot with Kafka's dump tool."""
    for topic in (PLAIN, COMPACTED, TRANSACTIONAL):
        (directory,) = partition_dirs(cluster, f"{topic}-0").values()
        for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot"):
            files = ",".join(map(str, sorted(directory.glob(pattern))))
            if files:
                text = run_tool("kafka.tools.DumpLogSegments", "--files", files, version=TARGET)
                assert "isvalid: false" not in text and "Mismatches" not in text
