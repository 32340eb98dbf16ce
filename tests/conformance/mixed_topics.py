"""Topics with everything that a log can have, for comparisons between readers.

`fill_mixed` writes a number of records: null keys and values, headers, all codecs within each
partition, committed and aborted transactions, compaction that leaves gaps, and log starts that are
not the start of a batch.
"""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = {"mixed": 4, "transacted": 2, "compacted": 2, "expired": 2}
SHARES = {"mixed": 6, "transacted": 2, "compacted": 1, "expired": 1}
"""Of the records: tenths."""
TURN = 700
"""Records in a row with the same codec; also those of a transaction."""
KEYS = 1_000
EXPIRED_OFFSET_DIVISOR = 3
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": 500,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 1000,
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SEGMENTS = 10
"""Of a partition of the compacted topic; each record is a millisecond later than the one before."""
WAIT_S = 600.0
_BASE_MS = 1_700_000_000_000
_FLUSH_S = 300.0


@dataclass(frozen=True)
class Mixed:
    """What was written, by topic: rows that read_committed has, or at most has (compacted)."""

    written: int
    rows: dict[str, int]


class _Writers:
    """One producer per codec; a different one every `TURN` records."""

    def __init__(self, bootstrap: str, **more: str) -> None:
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "linger.ms": 20,
                    "queue.buffering.max.messages": 200_000,
                    **({"transactional.id": f"mixed-{codec}", **more} if more else {}),
                }
            )
            for codec in CODECS
        ]

    def of(self, number: int) -> Producer:
        return self._producers[number // TURN % len(CODECS)]

    def all(self) -> list[Producer]:
        return self._producers

    def flush(self) -> None:
        for each in self._producers:
            assert each.flush(_FLUSH_S) == 0


def send(producer: Producer, topic: str, number: int) -> None:
    """Produce one record; its number decides about key, value, headers, partition, time."""
    key = None if number % 3 == 0 else f"key-{number % KEYS}"
    value = None if number % 11 == 5 else f"value {number} ".encode() * (1 + number % 4)
    headers: list[tuple[str, bytes | None]] | None = None
    if number % 4 == 0:
        headers = [("trace", b"%d" % number), ("none", None), ("trace", b""), ("é", b"\xff")]
    elif number % 4 == 1:
        headers = [("", b"")]
    if topic == "compacted":
        key, value = f"key-{number % KEYS}", None if number % 97 == 0 else value
    while True:
        try:
            producer.produce(
                topic,
                value,
                key,
                number % PARTITIONS[topic],
                timestamp=_BASE_MS + number,
                headers=headers,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _fill_transactions(bootstrap: str, count: int) -> int:
    """Write transactions of `TURN` records, every third of them aborted; return the kept ones."""
    writers, kept = _Writers(bootstrap, **{"transaction.timeout.ms": "600000"}), 0
    for each in writers.all():
        each.init_transactions(WAIT_S)
    for first in range(0, count, TURN):
        producer = writers.of(first)
        producer.begin_transaction()
        numbers = range(first, min(first + TURN, count))
        for number in numbers:
            send(producer, "transacted", number)
        assert producer.flush(_FLUSH_S) == 0
        if first // TURN % 3 == 1:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            kept += len(numbers)
    return kept


def count_rows(bootstrap: str, topic: str) -> int:
    """Read a topic to its end and count."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True}
    )
    consumer.assign([ConfluentPartition(topic, each, 0) for each in range(PARTITIONS[topic])])
    found, ended = 0, set()
    while len(ended) < PARTITIONS[topic]:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found += 1
    consumer.close()
    return found


def _settle_compaction(bootstrap: str, admin: AdminClient, count: int) -> None:
    """Wait until there are gaps, then turn compaction off, and wait until nothing changes."""
    deadline = time.monotonic() + WAIT_S
    while count_rows(bootstrap, "compacted") == count:
        assert time.monotonic() < deadline, "the topic was not compacted"
    change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    keep = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, "compacted", incremental_configs=[change, keep]
    )
    for each in admin.incremental_alter_configs([resource]).values():
        each.result(60)
    before = -1
    while before != (now := count_rows(bootstrap, "compacted")):
        assert time.monotonic() < deadline, "the compaction does not end"
        before = now
        time.sleep(2)


def _expire(admin: AdminClient, count: int) -> int:
    """Move the log starts; return the number of records that are left."""
    per_partition = count // PARTITIONS["expired"]
    first = per_partition // EXPIRED_OFFSET_DIVISOR
    asked = [ConfluentPartition("expired", each, first) for each in range(PARTITIONS["expired"])]
    for each in admin.delete_records(asked).values():
        assert each.result(60).low_watermark == first
    return count - first * PARTITIONS["expired"]


def fill_mixed(bootstrap: str, count: int) -> Mixed:
    """Create the topics and write ``count`` records, in all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    counts = {name: count * share // 10 for name, share in SHARES.items()}
    configs = {name: {"retention.ms": "-1"} for name in PARTITIONS}
    configs["compacted"] = {**COMPACTED, "segment.ms": str(counts["compacted"] // SEGMENTS)}
    topics = [
        NewTopic(name, partitions, 1, config=configs[name])
        for name, partitions in PARTITIONS.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(60)
    writers = _Writers(bootstrap)
    for topic in ("compacted", "mixed", "expired"):
        for number in range(counts[topic]):
            send(writers.of(number), topic, number)
        writers.flush()
    rows = {**counts, "transacted": _fill_transactions(bootstrap, counts["transacted"])}
    _settle_compaction(bootstrap, admin, counts["compacted"])
    rows["expired"] = _expire(admin, counts["expired"])
    return Mixed(sum(counts.values()), rows)
