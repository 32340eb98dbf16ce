"""What clients put into topics and take out of them, counted per topic.

Handlers of Produce and Fetch call `TopicEvents`; the node hands them a `TopicMeter`, a test may
hand them `NoTopicEvents`. Bytes are those of record batches as they are on the wire. A topic's
counters begin with its first success and end with the topic (`TopicMeter.forget`); the sums over
all topics go on, as Kafka's do. A refusal for a topic without counters is in the sums alone:
strangers choose names, and must not fill memory with them.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import fields

from ottla.observability.exposition import Family, Kind, Sample

_PREFIX = "kafka_server_brokertopicmetrics_"


class TopicEvents(Protocol):
    """Called on the event loop, once per partition of a request; quick, and must not raise."""

    def produced(self, topic: str, records: int, size: int) -> None:
        """A producer's batch of ``records`` in ``size`` bytes was appended."""
        ...

    def produce_failed(self, topic: str) -> None:
        """A producer's batch was refused."""
        ...

    def fetched(self, topic: str, size: int) -> None:
        """``size`` bytes were put into a consumer's reply; 0 for nothing new."""
        ...

    def fetch_failed(self, topic: str) -> None:
        """A fetch of a partition was refused."""
        ...

    def replicated_in(self, topic: str, size: int) -> None:
        """``size`` bytes came from a leader and were appended here."""
        ...

    def replicated_out(self, topic: str, size: int) -> None:
        """``size`` bytes were put into a follower's reply."""
        ...


class NoTopicEvents:
    """Nobody counts."""

    def produced(self, topic: str, records: int, size: int) -> None:
        """Ignore it."""

    def produce_failed(self, topic: str) -> None:
        """Ignore it."""

    def fetched(self, topic: str, size: int) -> None:
        """Ignore it."""

    def fetch_failed(self, topic: str) -> None:
        """Ignore it."""

    def replicated_in(self, topic: str, size: int) -> None:
        """Ignore it."""

    def replicated_out(self, topic: str, size: int) -> None:
        """Ignore it."""


class TopicCounts(msgspec.Struct):
    """One topic's counters. Each field is a metric of Kafka's: its name without ``PerSec``."""

    messagesin: int = 0
    bytesin: int = 0
    bytesout: int = 0
    totalproducerequests: int = 0
    failedproducerequests: int = 0
    totalfetchrequests: int = 0
    failedfetchrequests: int = 0
    replicationbytesin: int = 0
    replicationbytesout: int = 0


class TopicMeter:
    """`TopicEvents` that counts, per topic and in all."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._gone = TopicCounts()

    def of(self, topic: str) -> TopicCounts:
        """Return the counters of a topic, new ones of one not seen before."""
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts()
        return counts

    def produced(self, topic: str, records: int, size: int) -> None:
        """Count a batch that was appended."""
        counts = self.of(topic)
        counts.totalproducerequests += 1
        counts.messagesin += records
        counts.bytesin += size

    def produce_failed(self, topic: str) -> None:
        """Count a batch that was refused: as asked for, too, as Kafka does."""
        counts = self._topics.get(topic, self._gone)
        counts.totalproducerequests += 1
        counts.failedproducerequests += 1

    def fetched(self, topic: str, size: int) -> None:
        """Count a partition's part of a consumer's reply."""
        counts = self.of(topic)
        counts.totalfetchrequests += 1
        counts.bytesout += size

    def fetch_failed(self, topic: str) -> None:
        """Count a refused fetch."""
        counts = self._topics.get(topic, self._gone)
        counts.totalfetchrequests += 1
        counts.failedfetchrequests += 1

    def replicated_in(self, topic: str, size: int) -> None:
        """Count what a follower here has appended."""
        self.of(topic).replicationbytesin += size

    def replicated_out(self, topic: str, size: int) -> None:
        """Count what a follower elsewhere was sent."""
        self.of(topic).replicationbytesout += size

    def forget(self, topic: str) -> None:
        """Drop the counters of a topic that is gone; the sums keep what it brought."""
        counts = self._topics.pop(topic, None)
        if counts is not None:
            for each in fields(TopicCounts):
                brought = getattr(self._gone, each.name) + getattr(counts, each.name)
                setattr(self._gone, each.name, brought)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forget every topic that is not among ``topics``: bad names must not pile up here."""
        known = set(topics)
        for topic in [name for name in self._topics if name not in known]:
            self.forget(topic)

    def collect(self) -> Iterable[Family]:
        """Yield one family per counter: the sum without a topic, then each topic's own."""
        for each in fields(TopicCounts):
            own = [(name, getattr(c, each.name)) for name, c in sorted(self._topics.items())]
            total = getattr(self._gone, each.name) + sum(count for _, count in own)
            samples = [Sample((), total)]
            samples += [Sample((("topic", name),), count) for name, count in own]
            yield Family(
                f"{_PREFIX}{each.name}_total", Kind.COUNTER, _HELP[each.name], tuple(samples)
            )


_HELP = {
    "messagesin": "Records appended for producers.",
    "bytesin": "Bytes of batches appended for producers.",
    "bytesout": "Bytes of batches sent to consumers.",
    "totalproducerequests": "Partitions that producers wrote to, refused ones included.",
    "failedproducerequests": "Partitions of produce requests that were refused.",
    "totalfetchrequests": "Partitions that consumers read from, refused ones included.",
    "failedfetchrequests": "Partitions of fetch requests that were refused.",
    "replicationbytesin": "Bytes of batches copied here from leaders.",
    "replicationbytesout": "Bytes of batches sent to followers.",
}
