"""Markers of a sink in the cluster: the last micro-batch that each of its tasks has written.

A compacted topic holds one record per task of a sink::

    key    sink id "/" task number          UTF-8
    value  {"batch": 7, "rows": 500}        JSON; null when the sink no longer needs it

The record is written in the transaction of the rows, so either both are committed or neither is. A
task that replays a batch first gets its producer id, which ends every open transaction of earlier
attempts, and then reads its marker.

``rows`` is the number of rows the task wrote. A replay with another number did not get the same
rows. Older markers do not have ``rows``.

Each worker process remembers its position in the topic and reads only newer records.
"""

from typing import Final

import msgspec

from ottla.client.cluster import Refused
from ottla.client.partitioner import partition_of_key
from ottla.pipeline.arrow import record_batches
from ottla.pipeline.broker import EARLIEST, LATEST, BrokerClient
from ottla.pipeline.encode import Cells, Columns, HeaderCells, Numbers, Region, encode_rows
from ottla.pipeline.fetch import fetch_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
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


class Markers:
    """The marker topic of one cluster. Not thread-safe."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._read: dict[TopicPartition, _Read] = {}

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
        count = self._client.topic(self._topic).partitions
        return TopicPartition(self._topic, partition_of_key(key, count))

    def newest(self, key: bytes) -> Marker | None:
        """Return the marker of the last micro-batch that a task has committed, or None.

        Raises:
            Refused: the topic cannot be read. NoBroker: no broker answers.
        """
        partition = self.place(key)
        topic_id = self._client.topic(self._topic).topic_id
        read = self._read.get(partition)
        if read is None or read.topic_id != topic_id:
            read = self._read[partition] = _Read(topic_id)
        self._read_on(partition, read)
        return read.markers.get(key)

    def _read_on(self, partition: TopicPartition, read: _Read) -> None:
        ends = self._client.list_offsets({partition: LATEST}, committed=True)
        starts = self._client.list_offsets({partition: EARLIEST}, committed=True)
        start, end = max(read.position, starts[partition]), ends[partition]
        if start >= end:
            return
        chunks = fetch_batches(self._client, partition, start, end, committed=True)
        for rows in record_batches(chunks, partition, ("key", "value"), start, end):
            keys, values = rows.column(0).to_pylist(), rows.column(1).to_pylist()
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    read.markers.pop(key, None)
                else:
                    read.markers[key] = msgspec.json.decode(value, type=Marker)
        read.position = end


def marker_key(sink_id: str, task: int) -> bytes:
    """Return the key of a task's marker."""
    return f"{sink_id}/{task}".encode()


def marker_record(key: bytes, marker: Marker | None) -> Region:
    """Return the record that sets a marker; ``marker`` None removes it."""
    value = None if marker is None else msgspec.json.encode(marker)
    columns = Columns(Cells.of([key]), Cells.of([value]), HeaderCells.none(1))
    return encode_rows(columns, Numbers("i", [0]), 0, 1 << 20)
