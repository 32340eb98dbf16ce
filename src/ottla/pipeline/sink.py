"""Writes the rows of one task of a sink, exactly once or at least once.

Exactly once, task by task::

    open      a producer with the task's own transactional id: the previous producer is fenced, and
              its open transaction is aborted
    check     the marker topic: if this micro-batch is already written, the task is done
    send      the rows and the marker in one transaction
    commit

After a crash before the commit the transaction is aborted and Spark replays the task; after a crash
behind the commit the replay finds the marker. A replay must give every task the same rows as
before. The source ensures this: the cut of a micro-batch is part of its offset. If another source
or a changed query cuts a micro-batch differently, skipping a task would lose rows, so a replay with
another number of rows than was committed is an error (``onReplayMismatch``).

``atomicBatches`` uses one transaction for all tasks: they pass their encoded rows to the driver,
which sends them; this is for small micro-batches and has a size limit.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
import pyarrow as pa
from msgspec import structs

from ottla.client.cluster import NoBroker, Refused
from ottla.pipeline.broker import BrokerClient, client_for
from ottla.pipeline.encode import Region, encode_rows
from ottla.pipeline.markers import Marker, Markers, marker_key, marker_record
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import Delivery, ReplayMismatch, SinkOptions
from ottla.pipeline.produce import Fenced, ProduceOptions, RawProducer
from ottla.pipeline.rows import SinkRows, runs_of, sink_rows, timestamps_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import ZERO_UUID, TopicPartition

BATCH_BYTES: Final = 512 << 10
"""The largest batch before compression; ``kafka.batch.size`` overrides it."""
TRANSACTION_TIMEOUT_MS: Final = 5 * 60_000
"""The longest duration of a task; ``kafka.transaction.timeout.ms`` overrides it."""
GATHERED_BYTES_MAX: Final = 64 << 20
"""Most bytes one task may pass to the driver with ``atomicBatches``."""
_WHOLE_BATCH: Final = -1  # the task number of a transaction of all tasks

Regions = dict[TopicPartition, list[Region]]


class TooLarge(ValueError):
    """A micro-batch is too large for one transaction."""


class RowsDiffer(RuntimeError):
    """A committed task was replayed with another number of rows."""


class Task(msgspec.Struct, frozen=True):
    """The identity of a task: sink, number and micro-batch. A replay has the same values."""

    sink_id: str
    number: int
    batch: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of the task; it fences earlier attempts."""
        part = "all" if self.number == _WHOLE_BATCH else str(self.number)
        return f"ottla-sink-{self.sink_id}-{part}"


class SinkTask:
    """Writes the rows of one task. ``turn`` spreads rows without a key over the partitions."""

    def __init__(self, options: SinkOptions, task: Task) -> None:
        self._options = options
        self._task = task
        self._client = client_for(options.client)
        self._batch_bytes = _number(options, "batch.size", BATCH_BYTES)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows.

        Raises:
            BadRow: a row cannot become a record. Refused, NoBroker, Fenced: nothing was written
            or, with at-least-once, perhaps a part. RowsDiffer: the task was committed before with
            another number of rows.
        """
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            self._write_once(self._encoded(batches))
            return
        producer = RawProducer(self._client, _produce_options(self._options, None))
        producer.open()
        for regions in self._encoded(batches):
            producer.send(regions)

    def gather(self, batches: Iterable[pa.RecordBatch]) -> Regions:
        """Encode all rows for the driver to send.

        Raises:
            BadRow: as `write`. TooLarge: the rows exceed `GATHERED_BYTES_MAX`.
        """
        gathered: Regions = {}
        size = 0
        for regions in self._encoded(batches):
            for partition, theirs in regions.items():
                gathered.setdefault(partition, []).extend(theirs)
                size += sum(len(region.data) for region in theirs)
            if size > GATHERED_BYTES_MAX:
                raise TooLarge(
                    f"atomicBatches: a task has more than {GATHERED_BYTES_MAX >> 20} MiB of rows; "
                    "lower maxOffsetsPerTrigger, raise the number of partitions, or "
                    "disable atomicBatches"
                )
        return gathered

    def _write_once(self, parts: Iterator[Regions]) -> None:
        options = _produce_options(self._options, self._task.transactional_id)
        producer = RawProducer(self._client, options)
        markers = _markers_of(self._client, self._options.marker_topic)
        key = marker_key(self._task.sink_id, self._task.number)
        producer.open()
        last = markers.newest(key)
        if last is not None and last.batch >= self._task.batch:
            if last.batch == self._task.batch:
                self._check_replay(last, parts)
            return
        rows = 0
        try:
            for regions in parts:
                producer.send(regions)
                rows += _count(regions)
            done = Marker(self._task.batch, rows)
            producer.send({markers.place(key): [marker_record(key, done)]})
        except BaseException:
            # The next attempt would abort it too, but read_committed consumers wait until then.
            with suppress(Refused, NoBroker, Fenced):
                producer.abort()
            raise
        producer.commit()

    def _check_replay(self, committed: Marker, parts: Iterator[Regions]) -> None:
        """Check that a replay has as many rows as were committed. Raises RowsDiffer."""
        skip = self._options.on_replay_mismatch is ReplayMismatch.SKIP
        if committed.rows is None or skip:
            return
        rows = sum(map(_count, parts))
        if rows != committed.rows:
            raise RowsDiffer(
                f"sink {self._task.sink_id}: task {self._task.number} of micro-batch "
                f"{committed.batch} was committed with {committed.rows} rows, but its replay has "
                f"{rows}. If the query or its number of partitions was changed, change it back "
                "until this micro-batch is finished. If the query is not deterministic, or records "
                "have expired, onReplayMismatch=skip keeps the committed rows"
            )

    def _encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Regions]:
        for turn, batch in enumerate(batches, start=max(self._task.number, 0)):
            if not self._options.include_headers and "headers" in batch.schema.names:
                batch = batch.drop_columns(["headers"])
            rows = sink_rows(batch, self._options.topic, self._partitions, turn)
            if self._options.keep_timestamps:
                rows = structs.replace(rows, timestamps=timestamps_of(batch))
            yield self._regions(rows)

    def _regions(self, rows: SinkRows) -> Regions:
        found: Regions = {}
        for part in rows.by_partition:
            theirs = found.setdefault(part.partition, [])
            for numbers, timestamp in runs_of(part.rows, rows.timestamps):
                first = 0
                while first < len(numbers):
                    region = encode_rows(rows.columns, numbers, first, self._batch_bytes)
                    first = region.next_row
                    theirs.append(structs.replace(region, timestamp=timestamp))
        return found

    def _partitions(self, topic: str) -> int:
        try:
            return self._client.topic(topic).partitions
        except Refused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        # As in every producer, a metadata request creates the topic if the cluster allows it.
        topics = [MetadataRequestTopic(ZERO_UUID, topic)]
        self._client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True))
        return self._client.topic(topic).partitions


def write_gathered(options: SinkOptions, task: Task, parts: Iterable[Regions]) -> None:
    """Write the encoded rows of all tasks in one transaction. Raises as `SinkTask.write`."""
    whole = Task(task.sink_id, _WHOLE_BATCH, task.batch)
    SinkTask(options, whole)._write_once(iter(parts))


def prepare(options: SinkOptions) -> None:
    """Validate the options and create the marker topic, before tasks start.

    Raises:
        OptionError: a setting is invalid. Refused, NoBroker: the marker topic cannot be created.
    """
    _produce_options(options, None)
    if options.delivery is Delivery.EXACTLY_ONCE:
        Markers(client_for(options.client), options.marker_topic).ensure()


def forget(options: SinkOptions, sink_id: str, tasks: int) -> None:
    """Remove the markers of a finished write, which is never replayed.

    Raises:
        Refused, NoBroker: the marker topic cannot be written.
    """
    client = client_for(options.client)
    markers = Markers(client, options.marker_topic)
    producer = RawProducer(client, _produce_options(options, None))
    producer.open()
    for number in range(tasks):
        key = marker_key(sink_id, number)
        producer.send({markers.place(key): [marker_record(key, None)]})


def _count(regions: Regions) -> int:
    return sum(region.count for theirs in regions.values() for region in theirs)


_markers: dict[tuple[int, str], Markers] = {}


def _markers_of(client: BrokerClient, topic: str) -> Markers:
    """Return this process's cached markers."""
    return _markers.setdefault((id(client), topic), Markers(client, topic))


def _produce_options(options: SinkOptions, transactional_id: str | None) -> ProduceOptions:
    name = options.client.properties.get("compression.type", "none").upper()
    if name not in Compression.__members__:
        known = ", ".join(each.name.lower() for each in Compression)
        raise OptionError(f"option 'kafka.compression.type': {name.lower()} is none of {known}")
    return ProduceOptions(
        transactional_id=transactional_id,
        transaction_timeout_ms=_number(options, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        compression=Compression[name],
        delivery_timeout_ms=_number(options, "delivery.timeout.ms", 120_000),
    )


def _number(options: SinkOptions, name: str, default: int) -> int:
    text = options.client.properties.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option 'kafka.{name}' must be a non-negative integer, not {text!r}")
    return int(text)
