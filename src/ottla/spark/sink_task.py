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
which sends them; this is for small micro-batches and has a size limit. Its marker is that of task
-1. A query may change the option before a replay: a task also looks at the marker of task -1, and
with ``atomicBatches`` a task that has committed its rows itself passes none to the driver.

A marker of a later micro-batch means that the checkpoint is an old copy, and no marker at all of a
task that has committed that it is in another topic. Both are errors: the rows that such a run would
skip or repeat cannot be told from others.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
import pyarrow as pa
from msgspec import structs

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient, client_for
from ottla.client.blocking.raw_producer import (
    Fenced,
    ProduceOptions,
    RawProducer,
    Region,
)
from ottla.client.cluster import NoBroker, Refused
from ottla.client.coordinators import CoordinatorType
from ottla.formats.batch_encoder import encode_rows
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import TopicPartition
from ottla.spark.markers import Marker, Markers, marker_key, marker_record
from ottla.spark.option_values import OptionError
from ottla.spark.options import Delivery, ReplayMismatch, SinkOptions
from ottla.spark.rows import SinkRows, runs_of, sink_rows, timestamps_of

BATCH_BYTES: Final = 512 << 10
"""The largest batch before compression; ``kafka.batch.size`` overrides it."""
TRANSACTION_TIMEOUT_MS: Final = 5 * 60_000
"""The longest duration of a task; ``kafka.transaction.timeout.ms`` overrides it."""
GATHERED_BYTES_MAX: Final = 64 << 20
"""Most bytes one task may pass to the driver with ``atomicBatches``."""
_WHOLE_BATCH: Final = -1  # the task number of a transaction of all tasks
_COMMITTING: Final = "PrepareCommit"  # states as Kafka names them
_COMMITTED: Final = "CompleteCommit"

Regions = dict[TopicPartition, list[Region]]


class TooLarge(ValueError):
    """A micro-batch is too large for one transaction."""


class RowsDiffer(RuntimeError):
    """A committed task was replayed with another number of rows."""


class Outdated(RuntimeError):
    """A later micro-batch of the query is written: the checkpoint of this run is an old copy."""


class MarkersMissing(RuntimeError):
    """A task has committed a micro-batch, but its marker is not in the marker topic."""


class Gathered(msgspec.Struct, frozen=True):
    """Encoded rows, and the number of rows that the task committed itself in an earlier attempt."""

    regions: Regions
    committed: int = 0

    @property
    def rows(self) -> int:
        """The number of rows of the task."""
        return _count(self.regions) + self.committed


class Task(msgspec.Struct, frozen=True):
    """The identity of a task: sink, number and micro-batch. A replay has the same values.

    ``query`` is the id of a query that has only this sink; the sink's id ends with it.
    """

    sink_id: str
    number: int
    batch: int
    query: str | None = None

    @property
    def transactional_id(self) -> str:
        """The transactional id of the task; it fences earlier attempts."""
        part = "all" if self.number == _WHOLE_BATCH else str(self.number)
        return f"ottla-sink-{self.sink_id}-{part}"

    @property
    def key(self) -> bytes:
        """The key of the task's marker."""
        return marker_key(self.sink_id, self.number)

    @property
    def of_all_tasks(self) -> "Task":
        """The transaction of all tasks with ``atomicBatches``."""
        return structs.replace(self, number=_WHOLE_BATCH)


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
            another number of rows. Outdated: a later micro-batch is written. MarkersMissing: the
            marker of the task is not in the topic.
        """
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            self._write_once(map(Gathered, self._encoded(batches)))
            return
        producer = RawProducer(self._client, _produce_options(self._options, None))
        producer.open()
        for regions in self._encoded(batches):
            producer.send(regions)

    def gather(self, batches: Iterable[pa.RecordBatch]) -> Gathered:
        """Encode all rows for the driver to send; none if this task has committed them itself.

        Raises:
            BadRow: as `write`. TooLarge: the rows exceed `GATHERED_BYTES_MAX`. RowsDiffer,
            Outdated, MarkersMissing: as `write`.
        """
        own = self._own_marker()
        if own is not None:
            return Gathered({}, self._check_replay(own, map(Gathered, self._encoded(batches))))
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
        return Gathered(gathered)

    def _own_marker(self) -> Marker | None:
        """Return the marker of this micro-batch if the task wrote it itself, without the driver.

        It did so if ``atomicBatches`` was set since. An earlier attempt that may still be writing
        is fenced; after a micro-batch of all tasks in one transaction there is none.
        """
        markers = self._markers()
        whole = markers.newest(self._task.of_all_tasks.key)
        if whole is None or whole.batch != self._task.batch - 1:
            self._check_never_committed(markers)
            self._fence(self._task)
        own = markers.newest(self._task.key)
        return own if self._is_done(own) else None

    def _write_once(self, parts: Iterator[Gathered]) -> None:
        markers, key = self._markers(), self._task.key
        self._check_never_committed(markers)
        producer = self._producer(self._task)
        producer.open()
        last, whole = markers.newest_of([key, self._task.of_all_tasks.key])
        if self._is_done(last):
            assert last is not None
            self._check_replay(last, parts)
            return
        if self._is_in_whole_batch(markers, whole):
            return
        rows = 0
        try:
            for part in parts:
                producer.send(part.regions)
                rows += part.rows
            done = Marker(self._task.batch, rows)
            producer.send({markers.place(key): [marker_record(key, done)]})
        except BaseException:
            # The next attempt would abort it too, but read_committed consumers wait until then.
            with suppress(Refused, NoBroker, Fenced):
                producer.abort()
            raise
        producer.commit()

    def _is_in_whole_batch(self, markers: Markers, whole: Marker | None) -> bool:
        """Return whether a transaction of all tasks has written the rows of this task.

        One that may still be open is fenced: it can only follow a micro-batch of that kind.
        """
        all_tasks = self._task.of_all_tasks
        if self._task == all_tasks:
            return False
        if (-1 if whole is None else whole.batch) == self._task.batch - 1:
            self._fence(all_tasks)
            whole = markers.newest(all_tasks.key)
        return self._is_done(whole)

    def _is_done(self, marker: Marker | None) -> bool:
        """Return whether a marker is that of this micro-batch. Raises Outdated."""
        if marker is None or marker.batch < self._task.batch:
            return False
        if marker.batch > self._task.batch:
            raise Outdated(
                f"sink {self._task.sink_id}: micro-batch {marker.batch} is already written, and "
                f"this run is at micro-batch {self._task.batch}. Its checkpoint is an old copy, or "
                "another run of the query is ahead. Restore the newest checkpoint, or start with a "
                "new one from the offsets up to which the topic is written"
            )
        return True

    def _check_never_committed(self, markers: Markers) -> None:
        """Check that a task without a marker has not committed a micro-batch.

        The transaction coordinator remembers the last transaction of a transactional id for
        ``transactional.id.expiration.ms``; every transaction of a sink has a marker.

        Raises:
            MarkersMissing: it has.
        """
        if markers.has_read(self._task.key) or markers.newest(self._task.key) is not None:
            return
        if self._task.query is not None:
            self._check_name(markers, self._task.query)
        for task in {self._task, self._task.of_all_tasks}:
            for _ in self._client.attempts():
                state = _transaction_state(self._client, task.transactional_id)
                if state != _COMMITTING:
                    break
            if state == _COMMITTED and markers.newest(task.key) is None:
                raise MarkersMissing(
                    f"sink {task.sink_id}: task {task.number} has committed a micro-batch, but "
                    f"topic {self._options.marker_topic} has no marker of it. If markerTopic was "
                    "changed, change it back. If the topic was deleted, start with a new "
                    "checkpoint from the offsets up to which the rows are written"
                )

    def _check_name(self, markers: Markers, query: str) -> None:
        """Check that the only sink of a query has not written under another ``sinkId``.

        Raises:
            MarkersMissing: it has.
        """
        for number in (self._task.number, _WHOLE_BATCH):
            for name in markers.sinks_of(query, number) - {self._task.sink_id}:
                before = name.removesuffix(query).removesuffix("-")
                raise MarkersMissing(
                    f"sink {self._task.sink_id}: this query has written as sink {name}. Set sinkId "
                    + (f"back to {before!r}" if before else "no longer")
                    + ", or start with a new checkpoint from the offsets up to which the rows are "
                    "written"
                )

    def _fence(self, task: Task) -> None:
        """End the transaction of an earlier attempt, which can then not commit, if there is one."""
        if _transaction_state(self._client, task.transactional_id) is not None:
            self._producer(task).open()

    def _markers(self) -> Markers:
        return _markers_of(self._client, self._options.marker_topic)

    def _producer(self, task: Task) -> RawProducer:
        return RawProducer(self._client, _produce_options(self._options, task.transactional_id))

    def _check_replay(self, committed: Marker, parts: Iterator[Gathered]) -> int:
        """Check that a replay has as many rows as were committed; return how many these are.

        Raises:
            RowsDiffer: it has not, and that is not allowed.
        """
        mismatch = self._options.on_replay_mismatch
        if committed.rows is not None and mismatch is ReplayMismatch.SKIP:
            return committed.rows
        rows = sum(part.rows for part in parts)
        if committed.rows is None or rows == committed.rows:
            return rows
        if rows < committed.rows and mismatch is ReplayMismatch.SKIP_FEWER:
            return committed.rows
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
            return len(self._client.topic(topic).partitions)
        except Refused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        # As in every producer, a metadata request creates the topic if the cluster allows it.
        self._client.call(requests.metadata([topic], may_create=True))
        return len(self._client.topic(topic).partitions)


def write_gathered(options: SinkOptions, task: Task, parts: Iterable[Gathered]) -> None:
    """Write the encoded rows of all tasks in one transaction. Raises as `SinkTask.write`."""
    SinkTask(options, task.of_all_tasks)._write_once(iter(parts))


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


def _transaction_state(client: BrokerClient, transactional_id: str) -> str | None:
    """Return the state of the last transaction of an id; None if the coordinator knows none.

    Raises:
        Refused: the request was rejected. NoBroker: no broker answers.
    """
    request = DescribeTransactionsRequest([transactional_id])
    reply = client.call_coordinator(transactional_id, CoordinatorType.TRANSACTION, request)
    assert isinstance(reply, DescribeTransactionsResponse)
    (state,) = reply.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code != ErrorCode.NONE:
        raise Refused(state.error_code, transactional_id)
    return state.transaction_state


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
