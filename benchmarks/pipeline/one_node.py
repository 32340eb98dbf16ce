"""One node of ours for a part of the benchmark, and topics with records."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker.brokers import ottla, stopped_after


@contextmanager
def one_node() -> Iterator[tuple[str, Path]]:
    """Run a node; yield its address and an empty directory."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as place:
        root = Path(place)
        node = ottla(root / "ottla")
        with stopped_after(node):
            node.core = None  # Spark has two threads and takes both cores
            node.format()
            node.start()
            yield node.bootstrap, root


def create_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Create topics with this many partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)


def fill_topic(
    bootstrap: str, topic: str, records: int, record: Callable[[int], tuple[bytes, bytes]]
) -> None:
    """Write records, keys and values, in turns to two partitions."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "zstd",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(records):
        key, value = record(number)
        while True:
            try:
                producer.produce(topic, value, key, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic}: the node did not take the records")
