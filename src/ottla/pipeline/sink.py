"""What one task of a sink does: rows in, batches out, once or at least once.

Exactly once, task by task::

    open      a producer under the task's own transactional id: who had it before is fenced, and a
              transaction it left open is ended
    ask       the marker topic whether this micro-batch is written already; then there is nothing
              left to do
    send      the rows and the marker in one transaction
    commit

A crash before the commit voids all of it and Spark replays the task; a crash after it is found by
the replay. A replay must bring every task the rows it had before. The source sees to that: the cut
of a micro-batch is part of its offset. Where another source or a changed query cuts a micro-batch
differently, skipping a task would lose rows, so a replay whose number of rows differs from what was
committed is an error (``onReplayMismatch``).

``atomicBatches`` makes one transaction of all tasks: they hand their encoded rows to
the driver, which sends them; that is for small micro-batches and has a bound.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
import pyarrow as pa

from ottla.client.cluster import NoBroker, Refused
from ottla.pipeline.broker import BrokerClient, client_for
from ottla.pipeline.encode import Region, encode_rows
from ottla.pipeline.markers import Marker, Markers, marker_key, marker_record
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import Delivery, ReplayMismatch, SinkOptions
from ottla.pipeline.produce import Fenced, ProduceOptions, RawProducer
from ottla.pipeline.rows import SinkRows, sink_rows
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import ZERO_UUID, TopicPartition

BATCH_BYTES: Final = 512 << 10
"""How large a batch grows before compression, unless ``kafka.batch.size`` says otherwise."""
TRANSACTION_TIMEOUT_MS: Final = 5 * 60_000
"""How long a task may take, unless ``kafka.transaction.timeout.ms`` says otherwise."""
GATHERED_BYTES_MAX: Final = 64 << 20
"""What one task may hand to the driver with ``atomicBatches``."""
_WHOLE_BATCH: Final = -1  # the task number of a transaction that holds all tasks

Regions = dict[TopicPartition, list[Region]]


class TooLarge(ValueError):
    """A micro-batch has more rows than may be gathered for one transaction."""


class RowsDiffer(RuntimeError):
    """A task that is committed was replayed with another number of rows."""


class Task(msgspec.Struct, frozen=True):
    """Which part of which micro-batch is written. A replay has the same three."""

    sink_id: str
    number: int
    batch: int

    @property
    def transactional_id(self) -> str:
        """The name under which the task writes: zombies of it are fenced."""
        part = "all" if self.number == _WHOLE_BATCH else str(self.number)
        return f"ottla-sink-{self.sink_id}-{part}"


class SinkTask:
    """Writes what one task got. ``turn`` spreads rows without a key over the partitions."""

    def __init__(self, options: SinkOptions, task: Task) -> None:
        self._options = options
        self._task = task
        self._client = client_for(options.client)
        self._batch_bytes = _number(options, "batch.size", BATCH_BYTES)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows.

        Raises:
            BadRow: a row cannot become a record. Refused, NoBroker, Fenced: it was not written
            or, at least once, perhaps not all of it. RowsDiffer: it was written before, with
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
            BadRow: as `write`. TooLarge: there are too many.
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
                    "lower maxOffsetsPerTrigger, raise the number of partitions, or leave it out"
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
            # The next life of the task would void it too, but readers wait until then.
            with suppress(Refused, NoBroker, Fenced):
                producer.abort()
            raise
        producer.commit()

    def _check_replay(self, committed: Marker, parts: Iterator[Regions]) -> None:
        """See that a replay brings what was committed; Raises RowsDiffer."""
        skip = self._options.on_replay_mismatch is ReplayMismatch.SKIP
        if committed.rows is None or skip:
            return
        rows = sum(map(_count, parts))
        if rows != committed.rows:
            raise RowsDiffer(
                f"sink {self._task.sink_id}: task {self._task.number} of micro-batch "
                f"{committed.batch} was committed with {committed.rows} rows, and its replay has "
                f"{rows}. Either the query or its number of partitions was changed since: change "
                "it back until this micro-batch is through. Or the query is not deterministic, or "
                "records have expired: then onReplayMismatch=skip keeps what was committed"
            )

    def _encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Regions]:
        for turn, batch in enumerate(batches, start=max(self._task.number, 0)):
            if not self._options.include_headers and "headers" in batch.schema.names:
                batch = batch.drop_columns(["headers"])
            rows = sink_rows(batch, self._options.topic, self._partitions, turn)
            yield self._regions(rows)

    def _regions(self, rows: SinkRows) -> Regions:
        found: Regions = {}
        for share in rows.shares:
            theirs = found.setdefault(share.partition, [])
            first = 0
            while first < len(share.rows):
                region = encode_rows(rows.columns, share.rows, first, self._batch_bytes)
                first = region.next_row
                theirs.append(region)
        return found

    def _partitions(self, topic: str) -> int:
        try:
            return self._client.topic(topic).partitions
        except Refused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        # As every producer: where the cluster makes topics by itself, asking is enough.
        asked = [MetadataRequestTopic(ZERO_UUID, topic)]
        self._client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=True))
        return self._client.topic(topic).partitions


def write_gathered(options: SinkOptions, task: Task, parts: Iterable[Regions]) -> None:
    """Write what all tasks of a micro-batch have encoded, in one transaction. Raises as `write`."""
    whole = Task(task.sink_id, _WHOLE_BATCH, task.batch)
    SinkTask(options, whole)._write_once(iter(parts))


def prepare(options: SinkOptions) -> None:
    """See to what the tasks need, before there is any.

    Raises:
        OptionError: a setting has no meaning. Refused, NoBroker: the cluster will not have it.
    """
    _produce_options(options, None)
    if options.delivery is Delivery.EXACTLY_ONCE:
        Markers(client_for(options.client), options.marker_topic).ensure()


def forget(options: SinkOptions, sink_id: str, tasks: int) -> None:
    """Remove the markers of a write that is over and is never replayed.

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
    """Return the markers as this process has read them so far."""
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
        raise OptionError(f"option 'kafka.{name}' must be a number that is not negative: {text!r}")
    return int(text)
