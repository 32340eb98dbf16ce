"""Fetches raw batches of one partition from its leader, one fetch ahead.

    for chunk in fetch_batches(client, TopicPartition("orders", 3), 100, 900, committed=True):
        ...

The next fetch is sent before a chunk is yielded, so the broker and the network work while the chunk
is decoded. If the leader moves or a connection breaks, reading continues at the same offset with
the new leader; no batch is yielded twice.

A range may be empty or end in a gap: compaction removes records but keeps offsets.
"""

from collections.abc import Iterator
from typing import Final

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.wire import Wire
from ottla.client.failures import LEADER_MOVED, NoBroker, Refused
from ottla.client.fetched import Chunk, next_offset
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RecordTooLarge, RequestTimedOut
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicPartition, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.runtime.clock import SystemClock

READ_TIMEOUT_MS: Final = 120_000
"""How long to wait for the next records of a range; Spark's default."""
# One empty reply may be due to the wait limit; this many in a row mean that the range is empty.
_EMPTY_MAX: Final = 2


class DataLost(Exception):
    """Requested records are no longer in the log: retention or DeleteRecords removed them."""

    def __init__(self, partition: TopicPartition, offset: int, log_start: int) -> None:
        self.partition, self.offset, self.log_start = partition, offset, log_start
        super().__init__(f"{partition}: offset {offset} is gone, the log now starts at {log_start}")


class OutOfRange(Exception):
    """Requested offsets are beyond the log end: not written yet, or lost in an unclean election."""

    def __init__(self, partition: TopicPartition, offset: int, log_end: int) -> None:
        self.partition, self.offset, self.log_end = partition, offset, log_end
        super().__init__(f"{partition}: offset {offset} is beyond the log's end at {log_end}")


class TopicRecreated(Exception):
    """The topic was deleted and recreated under its name."""

    def __init__(self, topic: str, expected: Uuid, found: Uuid) -> None:
        self.topic, self.expected, self.found = topic, expected, found
        super().__init__(
            f"topic {topic} was deleted and recreated: id {uuid_text(found)}"
            f" instead of {uuid_text(expected)}"
        )


class ReadStalled(Exception):
    """The records of a range did not arrive in time."""


def fetch_batches(
    client: BrokerClient,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: Uuid | None = None,
    bytes_max: int | None = None,
) -> Iterator[Chunk]:
    """Yield the batches of the offsets ``[start, end)``, up to ``fetch.max.bytes`` at once.

    The first batch may begin before ``start``, and the last may end after ``end``. ``topic_id``
    None accepts any topic of that name. ``bytes_max`` limits each fetch further.

    Raises:
        DataLost, OutOfRange: the next offset to read is not in the log.
        TopicRecreated: the topic has another id. ReadStalled: the range ends after the
            readable offsets for `READ_TIMEOUT_MS`.
        Refused: the partition may not be read, or does not exist. NoBroker: no broker answers.
    """
    reading = _Reading(client, partition, (start, end), committed, topic_id)
    if bytes_max is not None:
        reading.bytes_max = min(reading.bytes_max, bytes_max)
    return reading.chunks()


class _Reading:
    """The state of reading one range; ``position`` is the next offset to fetch."""

    def __init__(
        self,
        client: BrokerClient,
        partition: TopicPartition,
        offsets: tuple[int, int],
        committed: bool,
        topic_id: Uuid | None,
    ) -> None:
        self._client = client
        self._partition = partition
        self.position, self._end = offsets
        self._committed = committed
        self._expected = topic_id
        self._topic_id = topic_id
        self._clock = SystemClock()
        self.bytes_max = client.fetch_bytes_max
        self._empty = 0  # consecutive empty fetches although the range was readable to its end

    def chunks(self) -> Iterator[Chunk]:
        patience, position = self._client.attempts(), self.position
        while self.position < self._end:
            if self.position > position:  # progress: earlier failures are over
                patience, position = self._client.attempts(), self.position
            attempt = next(patience, None)
            node = self._leader()
            try:
                with self._client.lend(node) as wire:
                    yield from self._read(wire)
            except (OSError, RequestTimedOut) as error:
                if attempt is None:
                    raise NoBroker(f"{self._partition}: {error}") from error
            except _LeaderMoved as moved:
                if attempt is None:
                    raise Refused(moved.code, str(self._partition)) from moved
            self._client.forget(self._partition.topic)

    def _leader(self) -> int:
        """Return the leader, after checking that the topic id is the expected one."""
        leader = self._client.leader(self._partition)
        self._topic_id = self._client.topic(self._partition.topic).topic_id
        if self._expected is not None and self._topic_id != self._expected:
            raise TopicRecreated(self._partition.topic, self._expected, self._topic_id)
        return leader.node_id

    def _read(self, wire: Wire) -> Iterator[Chunk]:
        """Yield until the end is reached. Raises `_LeaderMoved` if another node leads now."""
        stalled_at = self._clock.monotonic() + READ_TIMEOUT_MS
        wire.post(self._request())
        while True:
            chunk = self._accept(wire.take())
            failure = self._send_ahead(wire)
            if chunk is not None:
                yield chunk
                stalled_at = self._clock.monotonic() + READ_TIMEOUT_MS
            if self.position >= self._end:
                return
            if failure is not None:
                raise failure
            if self._clock.monotonic() >= stalled_at:
                raise ReadStalled(
                    f"{self._partition}: no records at offset {self.position} for"
                    f" {READ_TIMEOUT_MS // 1000} s, although the range ends at {self._end}"
                )

    def _send_ahead(self, wire: Wire) -> Exception | None:
        """Send the next fetch, if any; return a failure, to be raised after the current chunk."""
        if self.position >= self._end:
            return None
        try:
            wire.post(self._request())
        except OSError as error:
            return error
        return None

    def _request(self) -> Message:
        assert self._topic_id is not None
        position = requests.FetchPosition(self._topic_id, self.position)
        limits = requests.FetchLimits(bytes_max=self.bytes_max, partition_bytes_max=self.bytes_max)
        return requests.fetch({self._partition: position}, limits, committed=self._committed)

    def _accept(self, reply: Message) -> Chunk | None:
        """Process a reply and advance; return None if it has no batches."""
        found = _partition_of(reply, self._partition)
        if found is None:  # throttled by a quota
            return None
        if found.error_code:
            raise self._failure(found.error_code)
        data = found.records
        if data is None or not len(data):
            self._handle_empty_reply(found)
            return None
        following = next_offset(data)
        if following is None:
            raise RecordTooLarge(f"{self._partition}: no complete batch at {self.position}")
        self._empty = 0
        self.position = max(self.position, following)
        return Chunk(data, requests.aborted_in(found, committed=self._committed))

    def _handle_empty_reply(self, found: PartitionData) -> None:
        """Skip to the end if the range is readable but has no more records."""
        readable = found.last_stable_offset if self._committed else found.high_watermark
        self._empty = self._empty + 1 if readable >= self._end else 0
        if self._empty >= _EMPTY_MAX:
            self.position = self._end

    def _failure(self, code: int) -> Exception:
        if code in LEADER_MOVED:
            return _LeaderMoved(code)
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return Refused(code, str(self._partition))
        query = {self._partition: EARLIEST}
        log_start = self._client.list_offsets(query, committed=False)[self._partition]
        if self.position < log_start:
            return DataLost(self._partition, self.position, log_start)
        query = {self._partition: LATEST}
        log_end = self._client.list_offsets(query, committed=False)[self._partition]
        return OutOfRange(self._partition, self.position, log_end)


class _LeaderMoved(Exception):
    """The node does not lead the partition."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _partition_of(reply: Message, partition: TopicPartition) -> PartitionData | None:
    """Return the one partition of a reply.

    Raises:
        Refused: the whole fetch was rejected.
    """
    assert isinstance(reply, FetchResponse)
    if reply.error_code:
        raise Refused(reply.error_code, str(partition))
    for topic in reply.responses:
        for each in topic.partitions:
            if each.partition_index == partition.partition:
                return each
    return None
