"""The reader of streams that Spark sees: ``spark.readStream.format("ottla")``.

The position of a stream is only in its checkpoint. Spark passes the stored offsets back and may
replay a batch at any time. `StreamReader.partitions` uses the start and the pieces that are part of
``end``, so each task of a replay has the same rows as before; the exactly-once sink depends on it.
Offsets committed to a group (``groupId``) are for monitoring lag and are never read back.

`stream_reader` returns the reader for the installed Spark.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ottla.client.blocking.broker_client import client_for
from ottla.client.blocking.range_fetch import fetch_batches
from ottla.client.failures import Refused
from ottla.client.fetched import Chunk
from ottla.client.offset_spec import Range
from ottla.protocol.types import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.spark import plan, prefetch
from ottla.spark.data_loss import report
from ottla.spark.options import Limits, SourceOptions
from ottla.spark.plan import View
from ottla.spark.prefetch import Prefetched
from ottla.spark.read_limits import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from ottla.spark.row_handover import HAS_PREFETCH, offer_rows
from ottla.spark.source import RangeReader, raw_batches
from ottla.spark.stream_offsets import Positions, StreamOffset, from_json, stream_offset, to_json

log: Final = logging.getLogger(__name__)


def stream_reader(options: SourceOptions, schema: StructType) -> "StreamReader":
    """Return the reader of a stream. Raises BadSchema."""
    return (StreamReader if HAS_READ_LIMITS else Spark41StreamReader)(options, schema)


def survives_arrow(schema: StructType) -> bool:
    """Say whether Spark finds this schema in Arrow batches that have it.

    It compares everything if rows are passed beside the driver, also the metadata of columns, which
    tables of the catalog have and Arrow does not carry.
    """
    return not any(field.metadata for field in schema)


def fetch_range(options: SourceOptions, whole: Range, bytes_max: int) -> Iterator[Chunk]:
    """Yield raw batches of a range from the leader. Raises the errors of `fetch_batches`."""
    read = partial(fetch_batches, client_for(options.client), bytes_max=bytes_max)
    return raw_batches(read, options, whole)


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._clock = SystemClock()
        self._target: View | None = None  # at the start of an AvailableNow query
        self._latest: View | None = None  # at the last request for offsets
        self._planned: dict[str, object] | None = None  # the newest end returned to Spark
        self._triggered: int | None = None
        self._prefetched: Prefetched | None = None  # of the batch that ends at ``_planned``

    # -- offsets ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:
        """Return the start of a new query.

        Raises:
            OptionError: a topic does not exist, or an option does not fit it. DataLoss: see
                `Survey`.
        """
        there = self._survey.view()
        view = self._target or there
        positions = self._survey.resolve(self._options.starting, "startingOffsets", view)
        starts, losses = plan.within(positions, view)
        report(losses, self._options)
        return self._keep(starts, starts, view)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return the end of the next batch; ``start`` itself if there is no new data.

        Raises:
            DataLoss: see `Survey`. BadStreamOffset: ``start`` is not an offset of this source.
            OptionError: the options cut the batch into too many pieces.
        """
        return self._next_end(start, limit)

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
        if start == end:
            return []
        until = from_json(end)
        starts = self._starts_of(from_json(start), until)
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
            self._prefetched = None
            offer_rows(self, ready.batches)
        return [InputPartition(joined)]

    def _starts_of(self, start: StreamOffset, until: StreamOffset) -> Positions:
        """Return where a batch begins: its end says so, unless Spark's Kafka source stored it."""
        if until.starts is not None:
            return until.starts
        return {each: start.ends.get(each, 0) for each in until.ends}

    def commit(self, end: dict[str, object]) -> None:
        """Commit ``end`` to the group to show its lag; a failure is only logged."""
        if self._options.group is None:
            return
        try:
            ends = from_json(end).ends
            client_for(self._options.client).commit_offsets(self._options.group, ends)
        except (Refused, OSError) as error:
            log.warning("group %s: cannot commit offsets: %s", self._options.group, error)


class Spark41StreamReader(StreamReader):
    """Reads a stream in Spark 4.1, which passes no start and no limit to `latestOffset`.

    The reader remembers the start: from the initial offset, from the last batch it planned, or from
    the offset that Spark passes to `partitions` after a restart. Until then, limits cannot be
    applied.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: dict[str, object] | None = None  # Spark requests it late
        self._position: dict[str, object] | None = None  # the end of the last batch

    def initialOffset(self) -> dict[str, object]:
        """Return the start of a new query, the same as `latestOffset` used. Raises as there."""
        return super().initialOffset() if self._initial is None else self._initial

    def latestOffset(
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Return the end of the next batch. Spark passes no arguments. Raises as `StreamReader`."""
        end = self._next_end(*self._remembered())
        self._position = self._closed(end) if end == self._initial else end
        return self._position

    def _remembered(self) -> tuple[dict[str, object], ReadLimit]:
        """Return the start of the next batch and its limit.

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

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return the ranges of the batch that ends at ``end``; after a restart both are equal."""
        self._position = end
        return super().partitions(start, end)

    def _starts_of(self, start: StreamOffset, until: StreamOffset) -> Positions:
        """Return where a batch begins: at the end of a batch, which AvailableNow did not know."""
        if start.pieces is None:
            return super()._starts_of(start, until)
        return {each: start.ends.get(each, 0) for each in until.ends}
