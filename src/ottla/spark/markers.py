"""Markers of a sink in the cluster: the last micro-batch that each of its tasks has written.

A compacted topic holds one record per task of a sink::

    key    sink id "/" task number          UTF-8
    value  {"batch": 7, "rows": 500}        JSON; null when the sink no longer needs it

The record is written in the transaction of the rows, so either both are committed or neither is. A
task that replays a batch first gets its producer id, which ends every open transaction of earlier
attempts, and then reads its marker.

``rows`` is the number of rows the task wrote. A replay with another number did not get the same
rows. Older markers do not have ``rows``.

A task's marker is in the partition of its key, or in another one if the topic has got more
partitions since: a task without a marker at its place is looked for in all of them.

Each worker process remembers its position in the topic and reads only newer records. A task that
was killed leaves its transaction open, and consumers of committed records do not read behind it.
Markers of other tasks in the same partition are therefore read up to the high watermark, and count
if the commit of their transaction is there, too: the transactions of the task that asks have ended.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import fetch_batches
from ottla.client.blocking.raw_producer import Region
from ottla.client.cluster import Refused
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.partitioner import partition_of_key
from ottla.formats.arrow_batches import record_batches
from ottla.formats.batch_encoder import (
    Cells,
    Columns,
    HeaderCells,
    Numbers,
    encode_rows,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.control import ControlType, read_control_type
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import TopicPartition, Uuid

PARTITIONS: Final = 8
"""Partitions of the topic when it is created here; a task reads only one of them."""
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
}
_DEFAULT: Final = -1  # the cluster's default.replication.factor


class Marker(msgspec.Struct, frozen=True):
    """The newest micro-batch that a task has committed; ``rows`` None: unknown."""

    batch: int
    rows: int | None = None


class _Read(msgspec.Struct):
    """The position in a partition, and the markers read so far."""

    topic_id: Uuid
    position: int = 0
    markers: dict[bytes, Marker] = msgspec.field(default_factory=dict)
    behind: dict[bytes, Marker | None] = msgspec.field(default_factory=dict)
    """Markers, set or removed, of committed transactions behind the last stable offset."""

    def get(self, key: bytes) -> Marker | None:
        return self.behind[key] if key in self.behind else self.markers.get(key)


class Markers:
    """The marker topic of one cluster. Not thread-safe."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._read: dict[TopicPartition, _Read] = {}
        self._searched: dict[bytes, tuple[Uuid, int]] = {}

    def ensure(self) -> None:
        """Create the topic if it does not exist.

        Raises:
            Refused: it cannot be created. NoBroker: no broker answers.
        """
        if self._topic in self._client.topics([self._topic]):
            return
        topic = CreatableTopic(
            name=self._topic,
            num_partitions=PARTITIONS,
            replication_factor=_DEFAULT,
            configs=[CreatableTopicConfig(name, value) for name, value in _CONFIGS.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._client.request_timeout_ms)
        reply = self._client.call_controller(request)
        assert isinstance(reply, CreateTopicsResponse)
        for each in reply.topics:
            if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise Refused(each.error_code, each.name, each.error_message)

    def place(self, key: bytes) -> TopicPartition:
        """Return the partition of a task's marker."""
        count = len(self._client.topic(self._topic).partitions)
        return TopicPartition(self._topic, partition_of_key(key, count))

    def has_read(self, key: bytes) -> bool:
        """Return whether this process has seen a marker of the task, without a request."""
        return any(read.get(key) is not None for read in self._read.values())

    def sinks_of(self, query: str, task: int) -> set[str]:
        """Return the sinks of a query that have a marker of a task, as far as they were read.

        A lookup of a task without a marker has read all of the topic.
        """
        end = marker_key(query, task)
        return {
            key.decode().rpartition("/")[0]
            for read in self._read.values()
            for key in {*read.markers, *read.behind}
            if key.endswith(end)
        }

    def newest(self, key: bytes) -> Marker | None:
        """Return the marker of the last micro-batch that a task has committed, or None.

        Raises:
            Refused: the topic cannot be read. NoBroker: no broker answers.
        """
        return self.newest_of([key])[0]

    def newest_of(self, keys: Sequence[bytes]) -> list[Marker | None]:
        """Return the markers of several tasks. Raises as `newest`."""
        # Not from the cache: the topic may have more partitions than when it was last used.
        topic = self._client.topics([self._topic]).get(self._topic)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self._topic)
        places = [partition_of_key(key, len(topic.partitions)) for key in keys]
        reads = self._read_on(sorted({*places}), topic.topic_id)
        found = [reads[place].get(key) for key, place in zip(keys, places, strict=True)]
        searched = (topic.topic_id, len(topic.partitions))
        lacking = [
            index
            for index, marker in enumerate(found)
            if marker is None and self._searched.get(keys[index]) != searched
        ]
        if lacking:
            reads = self._read_on(topic.partitions, topic.topic_id)
        for index in lacking:
            theirs = [marker for each in reads.values() if (marker := each.get(keys[index]))]
            found[index] = max(theirs, key=lambda marker: marker.batch, default=None)
            if not theirs:
                self._searched[keys[index]] = searched
        return found

    def _read_on(self, numbers: Sequence[int], topic_id: Uuid) -> dict[int, _Read]:
        """Read partitions to their ends, and return what is known of each."""
        partitions = [TopicPartition(self._topic, number) for number in numbers]
        ends = self._client.list_offsets(dict.fromkeys(partitions, LATEST), committed=True)
        highs = self._client.list_offsets(dict.fromkeys(partitions, LATEST), committed=False)
        starts = self._client.list_offsets(dict.fromkeys(partitions, EARLIEST), committed=True)
        reads = {}
        for partition in partitions:
            read = self._read.get(partition)
            if read is None or read.topic_id != topic_id:
                read = self._read[partition] = _Read(topic_id)
            reads[partition.partition] = read
            start, end = max(read.position, starts[partition]), ends[partition]
            if start < end:
                self._read_range(partition, read, start, end)
            read.behind = {}
            if end < highs[partition]:
                read.behind = self._committed(partition, end, highs[partition])
        return reads

    def _read_range(self, partition: TopicPartition, read: _Read, start: int, end: int) -> None:
        chunks = fetch_batches(self._client, partition, start, end, committed=True)
        for rows in record_batches(chunks, partition, ("key", "value"), start, end):
            keys, values = rows.column(0).to_pylist(), rows.column(1).to_pylist()
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    read.markers.pop(key, None)
                else:
                    read.markers[key] = msgspec.json.decode(value, type=Marker)
        read.position = end

    def _committed(
        self, partition: TopicPartition, start: int, end: int
    ) -> dict[bytes, Marker | None]:
        """Return the markers of transactions that are committed in the offsets ``[start, end)``."""
        found: dict[bytes, Marker | None] = {}
        pending: dict[int, dict[bytes, Marker | None]] = {}
        for chunk in fetch_batches(self._client, partition, start, end, committed=False):
            for position, header in batches(chunk.data):
                if header.next_offset <= start:
                    continue
                if header.is_control:
                    theirs = pending.pop(header.producer_id, {})
                    if read_control_type(chunk.data, position) is ControlType.COMMIT:
                        found |= theirs
                    continue
                theirs = pending.setdefault(header.producer_id, {})
                for record in read_records(chunk.data, position):
                    if record.key is not None and record.offset >= start:
                        theirs[record.key] = _decoded(record.value)
                if not header.is_transactional:
                    found |= pending.pop(header.producer_id)
        return found


def _decoded(value: bytes | None) -> Marker | None:
    return None if value is None else msgspec.json.decode(value, type=Marker)


def marker_key(sink_id: str, task: int) -> bytes:
    """Return the key of a task's marker."""
    return f"{sink_id}/{task}".encode()


def marker_record(key: bytes, marker: Marker | None) -> Region:
    """Return the record that sets a marker; ``marker`` None removes it."""
    value = None if marker is None else msgspec.json.encode(marker)
    columns = Columns(Cells.of([key]), Cells.of([value]), HeaderCells.none(1))
    return encode_rows(columns, Numbers("i", [0]), 0, 1 << 20)
