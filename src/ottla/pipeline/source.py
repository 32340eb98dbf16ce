"""The readers that Spark sees: ``spark.read.format("ottla")`` and ``spark.readStream``.

Spark creates a reader in a Python process beside the driver, which plans, and pickles it for its
workers, which read. A reader therefore holds values only; each process has its own client.

The position of a stream is only in its checkpoint. Spark passes the stored offsets back and may
replay a batch at any time. `StreamReader.partitions` uses the start and the pieces that are part of
``end``, so each task of a replay has the same rows as before; the exactly-once sink depends on it.
Offsets committed to a group (``groupId``) are for monitoring lag and are never read back.

Spark 4.1 does not pass the start of a batch to `StreamReader.latestOffset`. The reader remembers
it: from the initial offset, from the last batch it planned, or from the offset that Spark passes to
``partitions`` after a restart. Until then, limits cannot be applied.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa
from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.client.cluster import Refused
from ottla.pipeline import plan, prefetch
from ottla.pipeline.arrow import record_batches
from ottla.pipeline.broker import client_for
from ottla.pipeline.columns import chosen_columns
from ottla.pipeline.decode import Chunk
from ottla.pipeline.fetch import DataLost, OutOfRange, TopicRecreated, fetch_batches
from ottla.pipeline.offsets import Positions, from_json, stream_offset, to_json
from ottla.pipeline.options import Limits, SourceOptions
from ottla.pipeline.plan import Cause, Loss, Range, View
from ottla.pipeline.prefetch import Prefetched
from ottla.pipeline.read_limits import (
    HAS_PREFETCH,
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    RowsWithPartitions,
    SupportsTriggerAvailableNow,
)
from ottla.pipeline.source_decoding import SourceDecoder
from ottla.pipeline.survey import Survey, report
from ottla.pipeline.tier import batch_reader
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import parse_uuid
from ottla.runtime.clock import SystemClock

log: Final = logging.getLogger(__name__)

_Gone: TypeAlias = DataLost | OutOfRange | TopicRecreated


class _Reading:
    """The part of both readers that runs in tasks: fetch one range and convert it to Arrow."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        decoding = options.decoding
        self._columns = chosen_columns(schema, () if decoding is None else decoding.parts)
        self._decoder = None if decoding is None else SourceDecoder(decoding)
        self._schema = schema
        self._survey = Survey(options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task. Raises DataLoss and the errors of fetches and batches."""
        value = partition.value
        for whole in value if isinstance(value, tuple) else (value,):  # a tuple is a joined batch
            left: Range | None = whole  # None: no readable offsets, or a dummy partition of Spark
            while left is not None:
                reading = _RangeRead(self._options, left)
                yield from self._decode(reading.chunks(), left)
                left = reading.left

    def _decode(self, chunks: Iterator[Chunk], whole: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the offsets of ``whole``."""
        schema = arrow_schema(self._schema)
        decoder, columns = self._decoder, self._columns
        if decoder is not None:
            columns = decoder.columns(columns)
        for batch in record_batches(chunks, whole.partition, columns, whole.start, whole.end):
            if decoder is not None:
                yield decoder.decode(batch, whole.partition, schema)
                continue
            # Spark also compares names and nullability of nested fields.
            yield batch if batch.schema.equals(schema) else _as(batch, schema)

    def _divide(self, whole: Sequence[Range], view: View | None = None) -> list[int]:
        """Return the number of pieces of each range, from the options and the topic's size.

        Raises:
            OptionError: the options require too many pieces.
        """
        splitting, density = self._options.splitting, {}
        if splitting.bytes_max is not None and whole:
            if view is None:
                view = self._survey.view_of([each.partition for each in whole])
            density = self._survey.density(view)
        return plan.divide(whole, splitting, density)


class _RangeRead:
    """Reads a range to its end or to the first lost offset.

    A loss ends the iteration instead of raising, so that the batches fetched before become rows;
    ``left`` is the rest of the range after the gap.
    """

    def __init__(self, options: SourceOptions, whole: Range) -> None:
        self._options = options
        self._whole = whole
        self.left: Range | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield raw batches. Raises DataLoss if ``failOnDataLoss`` is true."""
        whole = self._whole
        try:
            yield from self._batches()
        except (DataLost, OutOfRange, TopicRecreated) as error:
            loss, following = _loss_of(error, whole)
            report([loss], self._options)
            if following < whole.end:
                self.left = structs.replace(whole, start=following)

    def _batches(self) -> Iterator[Chunk]:
        """Read from files of sealed segments if the options say so, else from the leader."""
        options, whole = self._options, self._whole
        read = batch_reader(client_for(options.client), options, whole.partition)
        return _raw_batches(read, options, whole)


def _loss_of(error: _Gone, whole: Range) -> tuple[Loss, int]:
    """Return the loss in a range, and the offset at which to continue."""
    partition, note = whole.partition, "since this batch was planned"
    match error:
        case DataLost():
            following = min(error.log_start, whole.end)
            note = f"the log starts at {error.log_start} {note}"
            return Loss(partition, Cause.EXPIRED, error.offset, following, note), following
        case OutOfRange():
            note = f"the log ends at {error.log_end} {note}"
            return Loss(partition, Cause.TRUNCATED, error.offset, whole.end, note), whole.end
        case TopicRecreated():
            return Loss(
                partition, Cause.RECREATED, whole.start, whole.end, f"{error} {note}"
            ), whole.end


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of Arrow batches that Spark expects; timestamps are UTC."""
    if HAS_READ_LIMITS:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.1: always UTC


def survives_arrow(schema: StructType) -> bool:
    """Say whether Spark finds this schema in Arrow batches that have it.

    It compares everything if rows are passed beside the driver, also the metadata of columns, which
    tables of the catalog have and Arrow does not carry.
    """
    return not any(field.metadata for field in schema)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [each.cast(field.type) for each, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fetch_range(options: SourceOptions, whole: Range, bytes_max: int) -> Iterator[Chunk]:
    """Yield raw batches of a range from the leader. Raises the errors of `fetch_batches`."""
    read = partial(fetch_batches, client_for(options.client), bytes_max=bytes_max)
    return _raw_batches(read, options, whole)


def _raw_batches(
    read: Callable[..., Iterator[Chunk]], options: SourceOptions, whole: Range
) -> Iterator[Chunk]:
    return read(
        whole.partition,
        whole.start,
        whole.end,
        committed=options.committed,
        topic_id=parse_uuid(whole.topic_id) if whole.topic_id else None,
    )


class BatchReader(_Reading, DataSourceReader):
    """Reads the records between two boundaries once."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read, resolved now.

        Raises:
            OptionError: a topic does not exist, or an option does not fit it. DataLoss: see
                `Survey`.
        """
        options, survey = self._options, self._survey
        # One view for both boundaries; later records belong to the next read.
        view = survey.view()
        starts = survey.resolve(options.starting, "startingOffsets", view)
        ends = survey.resolve(options.ending, "endingOffsets", view)
        planned = plan.ranges(starts, ends, view.ids)
        kept, losses = plan.check(planned, view)
        report(losses, options)
        return [InputPartition(each) for each in plan.cut(kept, self._divide(kept, view))]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._clock = SystemClock()
        self._target: View | None = None  # at the start of an AvailableNow query
        self._latest: View | None = None  # at the last request for offsets
        self._planned: dict[str, object] | None = None  # the newest end returned to Spark
        self._triggered: int | None = None
        self._initial: dict[str, object] | None = None  # for Spark 4.1, which requests it late
        self._position: dict[str, object] | None = None  # for Spark 4.1, the end of the last batch
        self._prefetched: Prefetched | None = None  # of the batch that ends at ``_planned``

    # -- offsets ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:
        """Return the start of a new query.

        Raises:
            OptionError: a topic does not exist, or an option does not fit it. DataLoss: see
                `Survey`.
        """
        if self._initial is not None:
            return self._initial
        there = self._survey.view()
        view = self._target or there
        positions = self._survey.resolve(self._options.starting, "startingOffsets", view)
        starts, losses = plan.within(positions, view)
        report(losses, self._options)
        return self._keep(starts, starts, view)

    def latestOffset(
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Return the end of the next batch; ``start`` itself if there is no new data.

        Spark 4.1 passes no arguments.

        Raises:
            DataLoss: see `Survey`. BadStreamOffset: ``start`` is not an offset of this source.
            OptionError: the options cut the batch into too many pieces.
        """
        if start is None or limit is None:
            end = self._next_end(*self._remembered())
            self._position = self._closed(end) if end == self._initial else end
            return self._position
        return self._next_end(start, limit)

    def _remembered(self) -> tuple[dict[str, object], ReadLimit]:
        """Return the start of the next batch and its limit, for Spark 4.1.

        If the start is unknown this is a new query, or the target of an AvailableNow query: there
        is no limit, so that the end is not before a position that only the checkpoint has.
        """
        if self._position is not None:
            return self._position, self.getDefaultReadLimit()
        self._initial = self.initialOffset()
        return self._initial, ReadAllAvailable()

    def _closed(self, initial: dict[str, object]) -> dict[str, object]:
        """Return the end of a first batch without rows, distinguishable from an initial offset."""
        offset = from_json(initial)
        ends = offset.ends
        return to_json(stream_offset(ends, ends, offset.ids, {}), self._options.group)

    def _next_end(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        previous = from_json(start)
        view, starts = self._survey.detect_losses(
            lambda: self._target or self._survey.view_now(),
            lambda now: plan.advance(previous, now),
        )
        self._latest = view
        ends = self._ends(starts, view, limit)
        if ends == starts == previous.ends and view.ids == previous.ids:
            return start
        planned = plan.ranges(starts, ends, view.ids)
        self._prefetched = self._prefetch(planned)
        if self._prefetched is not None:
            joined = stream_offset(starts, ends, view.ids, {}, is_joined=True)
            self._planned = to_json(joined, self._options.group)
            return self._planned
        pieces = self._divide(planned, view)
        counts = {each.partition: count for each, count in zip(planned, pieces, strict=True)}
        self._planned = self._keep(starts, ends, view, counts)
        return self._planned

    def _prefetch(self, planned: Sequence[Range]) -> Prefetched | None:
        """Return all rows of a small batch; None if tasks are to read it."""
        may_pass = HAS_PREFETCH and survives_arrow(self._schema)
        if not may_pass or not prefetch.is_small(planned, self._options):
            return None
        splitting = self._options.splitting
        bytes_max = min(prefetch.BYTES_MAX, splitting.bytes_max or prefetch.BYTES_MAX)
        rows = (
            batch
            for each in planned
            for batch in self._decode(fetch_range(self._options, each, bytes_max), each)
        )
        try:
            found = prefetch.collect(rows, bytes_max)
        except Exception as error:  # noqa: BLE001 - the tasks report it, or survive it
            log.info("cannot prefetch, tasks will read: %s", error)
            return None
        return None if found is None else Prefetched(tuple(planned), found)

    def _ends(self, starts: Positions, view: View, limit: ReadLimit) -> Positions:
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        if limits.rows_min is not None and self._target is None:
            now = self._clock.monotonic()
            rows = sum(view.latest.values()) - sum(starts.values())
            waited = limits.delay_ms_max if self._triggered is None else now - self._triggered
            if not plan.is_due(rows, limits, waited):
                return dict(starts)
            self._triggered = now
        density = {} if limits.bytes_max is None else self._survey.density(view)
        return plan.limit(starts, view.latest, limits, density)

    def _keep(
        self,
        starts: Positions,
        ends: Positions,
        view: View,
        pieces: dict[TopicPartition, int] | None = None,
    ) -> dict[str, object]:
        return to_json(stream_offset(starts, ends, view.ids, pieces), self._options.group)

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current end offsets: an AvailableNow query reads up to them and ends."""
        self._target = self._survey.view_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if an option sets one; its value is taken from the options."""
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.rows_min is None else ReadMinRows(limits.rows_min)

    def reportLatestOffset(self) -> dict[str, object] | None:
        """Return the latest known end offsets, for the query's progress."""
        view = self._latest
        return None if view is None else self._keep(view.latest, view.latest, view)

    # -- ranges -----------------------------------------------------------------

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return the ranges of the batch that ends at ``end``, in their pieces.

        Raises:
            DataLoss: see `Survey`. BadStreamOffset: an offset is not of this source.
        """
        # The batch has only data of another source of the query: using the start in ``end`` would
        # read the previous batch again.
        if not HAS_READ_LIMITS:
            self._position = end  # with equal offsets: Spark 4.1 after a restart
        if start == end:
            return []
        until = from_json(end)
        starts = until.starts
        if not HAS_READ_LIMITS and from_json(start).pieces is not None:
            starts = None  # ``start`` ends a batch: an AvailableNow query did not know it
        if starts is None:  # stored by Spark's Kafka source, which has no start
            known = from_json(start).ends
            starts = {each: known.get(each, 0) for each in until.ends}
        planned = plan.ranges(starts, until.ends, until.ids)
        if not planned:
            return []
        # An older checkpoint, or one of Spark's Kafka source, has no pieces: use the options.
        counts = until.pieces
        pieces = (
            self._divide(planned)
            if counts is None
            else [counts[each.partition] for each in planned]
        )
        parts: list[Range | None] = [*plan.cut(planned, pieces)]
        if end != self._planned:  # a replay, maybe long after planning
            _, kept = self._survey.detect_losses(
                lambda: self._survey.view_of([each.partition for each in planned]),
                lambda now: plan.check(planned, now),
            )
            parts = plan.trim(plan.cut(planned, pieces), kept)
        if not until.is_joined:
            return [InputPartition(each) for each in parts]
        joined, ready = tuple(parts), self._prefetched
        if ready is not None and end == self._planned and ready.ranges == joined:
            self.__class__ = _ReaderWithRows
        return [InputPartition(joined)]

    def commit(self, end: dict[str, object]) -> None:
        """Commit ``end`` to the group to show its lag; a failure is only logged."""
        if self._options.group is None:
            return
        try:
            ends = from_json(end).ends
            client_for(self._options.client).commit_offsets(self._options.group, ends)
        except (Refused, OSError) as error:
            log.warning("group %s: cannot commit offsets: %s", self._options.group, error)


class _ReaderWithRows(StreamReader, RowsWithPartitions):  # its methods are all ours
    """A stream reader between planning a prefetched batch and the transfer of its rows.

    Spark's runner asks an instance of its private class for rows, but never for the latest offsets.
    A reader is therefore of this class only for one call.
    """

    def getCache(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of the batch planned last, once."""
        ready, self._prefetched = self._prefetched, None
        self.__class__ = StreamReader  # type: ignore[assignment]
        return None if ready is None else iter(ready.batches)
