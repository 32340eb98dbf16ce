"""What a sink remembers in the cluster: which micro-batch each of its tasks has written already.

A compacted topic holds one record for each task of a sink::

    key    sink id "/" task number          UTF-8
    value  {"batch": 7, "rows": 500}        JSON; null when the sink has no use for it any more

The record is written in the transaction of the rows, so both are there or neither is. Whoever
replays a batch asks first, after it has got its producer id: by then every transaction that an
earlier life of the task left open is ended, and what is committed can be read.

``rows`` is how many rows the task wrote. A replay that brings another number was not given the same
rows. Markers written before ``rows`` existed do not have it.

Each worker process remembers how far it has read; only what came since is read again.
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
"""Of the topic, when it is made here: a task reads one of them, so more are read faster."""
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
}
_DEFAULT: Final = -1  # as many replicas as the cluster gives a topic


class Marker(msgspec.Struct, frozen=True):
    """The newest micro-batch that a task has committed; ``rows`` None: not known."""

    batch: int
    rows: int | None = None


class _Read(msgspec.Struct):
    """How far a partition was read, and what stands there."""

    topic_id: Uuid
    position: int = 0
    markers: dict[bytes, Marker] = msgspec.field(default_factory=dict)


class Markers:
    """The marker topic of one cluster. For one thread."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._read: dict[TopicPartition, _Read] = {}

    def ensure(self) -> None:
        """Make the topic where there is none.

        Raises:
            Refused: it is not there and cannot be made. NoBroker: nobody answers.
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
        """Return where the marker of a task stands."""
        count = self._client.topic(self._topic).partitions
        return TopicPartition(self._topic, partition_of_key(key, count))

    def newest(self, key: bytes) -> Marker | None:
        """Return the marker of the last micro-batch that a task has committed; None: none yet.

        Raises:
            Refused: the topic cannot be read. NoBroker: nobody answers.
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
    """Return the record that says how far a task is; None: forget the task."""
    value = None if marker is None else msgspec.json.encode(marker)
    columns = Columns(Cells.of([key]), Cells.of([value]), HeaderCells.none(1))
    return encode_rows(columns, Numbers("i", [0]), 0, 1 << 20)
