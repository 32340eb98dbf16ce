"""Raw batches of one partition, from its leader, one fetch ahead of their use.

    for chunk in fetch_batches(client, TopicPartition("orders", 3), 100, 900, committed=True):
        ...

The next fetch is sent before a chunk is handed out, so the broker and the network work while the
chunk is decoded. Where the leader moves, or a connection breaks, reading goes on at the same offset
with the new one; what was handed out is never handed out again.

A range may hold nothing, or end in a gap: compaction removes records and never their offsets.
"""

from collections.abc import Iterator
from typing import Final

from ottla.client.cluster import NoBroker, Refused
from ottla.pipeline import requests
from ottla.pipeline.broker import EARLIEST, LATEST, MOVED, BrokerClient
from ottla.pipeline.decode import Chunk, next_offset
from ottla.pipeline.wire import Wire
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RecordTooLarge, RequestTimedOut
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicPartition, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.runtime.clock import SystemClock

READ_TIMEOUT_MS: Final = 120_000
"""How long the records before the end of a range may fail to come; Spark's default."""
# A fetch may come back empty for want of time. One that says twice that nothing is there is right.
_EMPTY_MAX: Final = 2


class DataLost(Exception):
    """Records asked for are no longer in the log: retention or a deletion removed them."""

    def __init__(self, partition: TopicPartition, asked: int, log_start: int) -> None:
        self.partition, self.asked, self.log_start = partition, asked, log_start
        super().__init__(f"{partition}: offset {asked} is gone, the log now starts at {log_start}")


class OutOfRange(Exception):
    """Records asked for are not in the log yet, or were lost with an unclean election."""

    def __init__(self, partition: TopicPartition, asked: int, log_end: int) -> None:
        self.partition, self.asked, self.log_end = partition, asked, log_end
        super().__init__(f"{partition}: offset {asked} is beyond the log's end at {log_end}")


class TopicRecreated(Exception):
    """The topic is another one than was asked for: deleted, and made anew under its name."""

    def __init__(self, topic: str, expected: Uuid, found: Uuid) -> None:
        self.topic, self.expected, self.found = topic, expected, found
        super().__init__(
            f"topic {topic} was deleted and made anew: id {uuid_text(found)}"
            f" instead of {uuid_text(expected)}"
        )


class ReadStalled(Exception):
    """The records before the end of a range did not come in time."""


def fetch_batches(
    client: BrokerClient,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    topic_id: Uuid | None = None,
) -> Iterator[Chunk]:
    """Yield the batches that hold the offsets ``[start, end)``, up to ``fetch.max.bytes`` at once.

    The first may begin before ``start`` and the last go on behind ``end``. ``topic_id`` None
    reads whatever topic has the name now.

    Raises:
        DataLost, OutOfRange: an offset is not in the log, from where reading came to a halt.
        TopicRecreated: the topic has another id. ReadStalled: the range ends behind what may be
            read, for `READ_TIMEOUT_MS`.
        Refused: the partition may not be read, or is not there. NoBroker: nobody answers.
    """
    return _Reading(client, partition, (start, end), committed, topic_id).chunks()


class _Reading:
    """One range being read; ``position`` is the next offset to ask for."""

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
        self._empty = 0  # fetches in a row that brought nothing although there was no more to come

    def chunks(self) -> Iterator[Chunk]:
        patience, position = self._client.attempts(), self.position
        while self.position < self._end:
            if self.position > position:  # it moved: whatever was wrong has passed
                patience, position = self._client.attempts(), self.position
            attempt = next(patience, None)
            node = self._leader()
            try:
                with self._client.lend(node) as wire:
                    yield from self._read(wire)
            except (OSError, RequestTimedOut) as error:
                if attempt is None:
                    raise NoBroker(f"{self._partition}: {error}") from error
            except _Moved as moved:
                if attempt is None:
                    raise Refused(moved.code, str(self._partition)) from moved
            self._client.forget(self._partition.topic)

    def _leader(self) -> int:
        """Find the leader, and that the topic is still the one that was asked for."""
        leader = self._client.leader(self._partition)
        self._topic_id = self._client.topic(self._partition.topic).topic_id
        if self._expected is not None and self._topic_id != self._expected:
            raise TopicRecreated(self._partition.topic, self._expected, self._topic_id)
        return leader.node_id

    def _read(self, wire: Wire) -> Iterator[Chunk]:
        """Yield until the end is reached. Raises `_Moved` where another leads now."""
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
                    f"{self._partition}: nothing to read at offset {self.position} for"
                    f" {READ_TIMEOUT_MS // 1000} s, although the range ends at {self._end}"
                )

    def _send_ahead(self, wire: Wire) -> Exception | None:
        """Send the next fetch, if any. A failure is for later: a chunk is at hand."""
        if self.position >= self._end:
            return None
        try:
            wire.post(self._request())
        except OSError as error:
            return error
        return None

    def _request(self) -> Message:
        assert self._topic_id is not None
        return requests.fetch(
            self._partition,
            self._topic_id,
            self.position,
            committed=self._committed,
            bytes_max=self._client.fetch_bytes_max,
        )

    def _accept(self, reply: Message) -> Chunk | None:
        """Take a reply in and move on; None where it brought nothing."""
        found = _partition_of(reply, self._partition)
        if found is None:  # held back by a quota
            return None
        if found.error_code:
            raise self._failure(found.error_code)
        data = found.records
        if data is None or not len(data):
            self._take_emptiness(found)
            return None
        following = next_offset(data)
        if following is None:
            raise RecordTooLarge(f"{self._partition}: no whole batch at {self.position}")
        self._empty = 0
        self.position = max(self.position, following)
        aborted = found.aborted_transactions or () if self._committed else ()
        return Chunk(data, tuple((each.producer_id, each.first_offset) for each in aborted))

    def _take_emptiness(self, found: PartitionData) -> None:
        """Nothing came: where more may be read than the range has, there is nothing more in it."""
        readable = found.last_stable_offset if self._committed else found.high_watermark
        self._empty = self._empty + 1 if readable >= self._end else 0
        if self._empty >= _EMPTY_MAX:
            self.position = self._end

    def _failure(self, code: int) -> Exception:
        if code in MOVED:
            return _Moved(code)
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return Refused(code, str(self._partition))
        asked = {self._partition: EARLIEST}
        log_start = self._client.list_offsets(asked, committed=False)[self._partition]
        if self.position < log_start:
            return DataLost(self._partition, self.position, log_start)
        asked = {self._partition: LATEST}
        log_end = self._client.list_offsets(asked, committed=False)[self._partition]
        return OutOfRange(self._partition, self.position, log_end)


class _Moved(Exception):
    """The node that was asked does not lead the partition."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _partition_of(reply: Message, partition: TopicPartition) -> PartitionData | None:
    """Return the one partition of a reply.

    Raises:
        Refused: the whole fetch was.
    """
    assert isinstance(reply, FetchResponse)
    if reply.error_code:
        raise Refused(reply.error_code, str(partition))
    for topic in reply.responses:
        for each in topic.partitions:
            if each.partition_index == partition.partition:
                return each
    return None
