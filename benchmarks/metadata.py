"""The metadata image: one change among many partitions, and the pauses of a snapshot.

    python -m benchmarks metadata

A change is replayed, and its delta created and passed to a publisher. If that costs the same with
1,000 and with 100,000 partitions, work is proportional to the change. A snapshot is written batch
by batch; the figure is the longest batch, during which the event loop is blocked.
"""

from time import perf_counter, process_time

from benchmarks.report import Row, interleaved, render, spread
from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image, Provenance
from ottla.metadata.publishing import Publication
from ottla.metadata.replay import apply, replay_all
from ottla.metadata.snapshot_records import snapshot_values
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset, Uuid

FEW, MANY = 1_000, 100_000
PARTITIONS_PER_TOPIC = 10
BROKERS = 6
CHANGES = 500
PAUSE_MS_MAX = 50.0
RATIO_MAX = 2.0
SNAPSHOTS = 3


class Counting:
    """A publisher that visits every changed partition."""

    name = "replicas"

    def __init__(self) -> None:
        self.partitions = 0

    def on_image(self, delta: Delta, image: Image) -> None:
        """Count the changed partitions."""
        self.partitions += sum(1 for _ in delta.partitions())


def topic_id(number: int) -> Uuid:
    """Return an id that is distributed like a random one, and the same in every run."""
    return Uuid((number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big"))


def image_of(partitions: int) -> Image:
    """Return an image of so many partitions with three replicas each."""
    records: list[Message] = [FeatureLevelRecord("metadata.version", 29)]
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        records.append(TopicRecord(f"topic-{number}", topic_id(number)))
        for partition in range(PARTITIONS_PER_TOPIC):
            replicas = [(number + partition + n) % BROKERS for n in range(3)]
            records.append(
                PartitionRecord(
                    partition,
                    topic_id(number),
                    replicas,
                    list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[topic_id(broker) for broker in replicas],
                )
            )
    return replay_all(EMPTY, records)


class Changing:
    """Changes partitions of one image, one at a time, and publishes each change."""

    def __init__(self, partitions: int) -> None:
        self.image = image_of(partitions)
        self.topics = partitions // PARTITIONS_PER_TOPIC
        self.publisher = Counting()
        self.publication = Publication([self.publisher])
        self.publication.start(self.image)
        self.next = 0

    def __call__(self) -> None:
        """Make, apply and publish `CHANGES` changes."""
        for _ in range(CHANGES):
            self.next += 1
            number = self.next * 7919 % self.topics
            record = PartitionChangeRecord(
                self.next % PARTITIONS_PER_TOPIC, topic_id(number), isr=[1], leader=1
            )
            self.image, delta = apply(self.image, [record], Provenance(Offset(self.next)))
            self.publication.publish(delta)


def changes() -> Row:
    """Compare one change among many partitions with one among few."""
    many, few = Changing(MANY), Changing(FEW)
    ours, theirs, ratios = interleaved(many, few)
    assert many.publisher.partitions > MANY
    ratio = ours / theirs
    return Row(
        "metadata",
        f"one PartitionChange among {MANY:,} partitions, applied and published",
        f"{ours / CHANGES * 1e6:.1f} µs",
        f"among {FEW:,}, {theirs / CHANGES * 1e6:.1f} µs ({spread([1 / r for r in ratios])})",
        ratio,
        f"<= {RATIO_MAX}",
        ratio <= RATIO_MAX,
    )


def pauses(image: Image) -> tuple[float, float, int]:
    """Return the longest time one batch took, that of all, in processor ms, and the bytes."""
    longest, size = 0.0, 0
    began_all = began = process_time()
    for batch in snapshot_values(image):
        size += sum(map(len, batch))
        now = process_time()
        longest = max(longest, now - began)
        began = now
    return longest * 1000, (process_time() - began_all) * 1000, size


def snapshot() -> Row:
    """Measure how long a snapshot of many partitions blocks the event loop."""
    began = perf_counter()
    image = image_of(MANY)
    load_s = perf_counter() - began
    longest, whole, size = min(pauses(image) for _ in range(SNAPSHOTS))
    ratio = longest / PAUSE_MS_MAX
    return Row(
        "metadata",
        f"longest pause while a snapshot of {MANY:,} partitions is made",
        f"{longest:.1f} ms of {whole:.0f} ms, {size / 1e6:.1f} MB (loading took {load_s:.1f} s)",
        f"{PAUSE_MS_MAX:.0f} ms allowed",
        ratio,
        "<= 1.0",
        ratio <= 1.0,
    )


def run() -> list[Row]:
    """Measure all of the area."""
    return [changes(), snapshot()]


if __name__ == "__main__":
    print(render(run()))
