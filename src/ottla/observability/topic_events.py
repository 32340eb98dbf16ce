"""Counters of produced, fetched and replicated data, by topic.

The handlers of Produce and Fetch call `TopicEvents`; the node passes them a `TopicMeter`, tests may
pass `NoTopicEvents`. Sizes are bytes of record batches on the wire. The counters of a topic are
created by its first success and removed with the topic (`TopicMeter.forget`); the totals over all
topics remain, as in Kafka. A rejected request for a topic without counters is only added to the
totals: clients choose topic names, and unknown names must not fill the memory.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import fields

from ottla.observability.exposition import Family, Kind, Sample

_PREFIX = "kafka_server_brokertopicmetrics_"


class TopicEvents(Protocol):
    """Callbacks on the event loop, once per partition of a request; fast, and must not raise."""

    def produced(self, topic: str, records: int, size: int) -> None:
        """A producer's batch of ``records`` in ``size`` bytes was appended."""
        ...

    def produce_failed(self, topic: str) -> None:
        """A producer's batch was rejected."""
        ...

    def fetched(self, topic: str, size: int) -> None:
        """``size`` bytes were sent to a consumer; 0 if there was nothing new."""
        ...

    def fetch_failed(self, topic: str) -> None:
        """A fetch of a partition was rejected."""
        ...

    def replicated_in(self, topic: str, size: int) -> None:
        """``size`` bytes from a leader were appended here."""
        ...

    def replicated_out(self, topic: str, size: int) -> None:
        """``size`` bytes were sent to a follower."""
        ...


class NoTopicEvents:
    """Ignores all events."""

    def produced(self, topic: str, records: int, size: int) -> None:
        """Ignore the event."""

    def produce_failed(self, topic: str) -> None:
        """Ignore the event."""

    def fetched(self, topic: str, size: int) -> None:
        """Ignore the event."""

    def fetch_failed(self, topic: str) -> None:
        """Ignore the event."""

    def replicated_in(self, topic: str, size: int) -> None:
        """Ignore the event."""

    def replicated_out(self, topic: str, size: int) -> None:
        """Ignore the event."""


class TopicCounts(msgspec.Struct):
    """The counters of one topic. Each field is a metric of Kafka without ``PerSec``."""

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
    """`TopicEvents` that counts, by topic and in total."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._other_topics = TopicCounts()

    def of(self, topic: str) -> TopicCounts:
        """Return the counters of a topic; create them if necessary."""
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
        """Count a rejected batch, also as a request, as Kafka does."""
        counts = self._topics.get(topic, self._other_topics)
        counts.totalproducerequests += 1
        counts.failedproducerequests += 1

    def fetched(self, topic: str, size: int) -> None:
        """Count the bytes of one partition that were sent to a consumer."""
        counts = self.of(topic)
        counts.totalfetchrequests += 1
        counts.bytesout += size

    def fetch_failed(self, topic: str) -> None:
        """Count a rejected fetch."""
        counts = self._topics.get(topic, self._other_topics)
        counts.totalfetchrequests += 1
        counts.failedfetchrequests += 1

    def replicated_in(self, topic: str, size: int) -> None:
        """Count the bytes that a follower on this broker appended."""
        self.of(topic).replicationbytesin += size

    def replicated_out(self, topic: str, size: int) -> None:
        """Count the bytes that were sent to a follower on another broker."""
        self.of(topic).replicationbytesout += size

    def forget(self, topic: str) -> None:
        """Remove the counters of a deleted topic; the totals keep its values."""
        counts = self._topics.pop(topic, None)
        if counts is not None:
            for each in fields(TopicCounts):
                total = getattr(self._other_topics, each.name) + getattr(counts, each.name)
                setattr(self._other_topics, each.name, total)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Remove every topic that is not in ``topics``."""
        known = set(topics)
        for topic in [name for name in self._topics if name not in known]:
            self.forget(topic)

    def collect(self) -> Iterable[Family]:
        """Yield one family per counter: the total without a topic label, then each topic."""
        for each in fields(TopicCounts):
            own = [(name, getattr(c, each.name)) for name, c in sorted(self._topics.items())]
            total = getattr(self._other_topics, each.name) + sum(count for _, count in own)
            samples = [Sample((), total)]
            samples += [Sample((("topic", name),), count) for name, count in own]
            yield Family(
                f"{_PREFIX}{each.name}_total", Kind.COUNTER, _HELP[each.name], tuple(samples)
            )


_HELP = {
    "messagesin": "Records appended for producers.",
    "bytesin": "Bytes of batches appended for producers.",
    "bytesout": "Bytes of batches sent to consumers.",
    "totalproducerequests": "Partitions that producers wrote to, including rejected ones.",
    "failedproducerequests": "Partitions of produce requests that were rejected.",
    "totalfetchrequests": "Partitions that consumers read from, including rejected ones.",
    "failedfetchrequests": "Partitions of fetch requests that were rejected.",
    "replicationbytesin": "Bytes of batches copied here from leaders.",
    "replicationbytesout": "Bytes of batches sent to followers.",
}
