"""The readers that Spark sees: ``spark.read.format("ottla")`` and ``spark.readStream``.

Spark makes a reader in a Python process beside the driver, which plans, and pickles it to its
workers, which read: a reader holds values only, and each process its own client.

A stream's position is in its checkpoint and nowhere else. Spark hands back the offsets it kept, and
may replay a batch at any time: `StreamReader.partitions` reads exactly what ``end`` says, from the
start that ``end`` carries, cut into the pieces that ``end`` carries: each task of a replay has the
rows that it had before, which the exactly-once sink relies on. Offsets committed to a group
(``groupId``) are for people who watch the lag; nothing reads them back.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.client.cluster import Refused
from ottla.pipeline import plan
from ottla.pipeline.arrow import record_batches
from ottla.pipeline.broker import client_for
from ottla.pipeline.columns import chosen_columns
from ottla.pipeline.decode import Chunk
from ottla.pipeline.fetch import DataLost, OutOfRange, TopicRecreated
from ottla.pipeline.offsets import Positions, from_json, stream_offset, to_json
from ottla.pipeline.options import Limits, SourceOptions
from ottla.pipeline.plan import Cause, Loss, Range, View
from ottla.pipeline.survey import Survey, report
from ottla.pipeline.tier import batch_reader
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import parse_uuid
from ottla.runtime.clock import SystemClock

log: Final = logging.getLogger(__name__)

_Gone: TypeAlias = DataLost | OutOfRange | TopicRecreated


class _Reading:
    """What both readers do in a task: fetch one range and turn it into Arrow."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = chosen_columns(schema)
        self._schema = schema
        self._survey = Survey(options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range. Raises DataLoss, and whatever a fetch or batch raises."""
        whole = partition.value
        if whole is None:  # nothing is left of it, or Spark makes one up where there is none
            return
        assert isinstance(whole, Range)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        left: Range | None = whole
        while left is not None:
            stretch = _Stretch(self._options, left)
            for batch in record_batches(
                stretch.chunks(), left.partition, self._columns, left.start, left.end
            ):
                # Spark compares names and nullability too, down to those inside a list.
                yield batch if batch.schema.equals(schema) else _as(batch, schema)
            left = stretch.left

    def _divide(self, whole: Sequence[Range], view: View | None = None) -> list[int]:
        """Return into how many pieces each range is cut, by the options and the topic's size.

        Raises:
            OptionError: the options ask for too many pieces.
        """
        splitting, density = self._options.splitting, {}
        if splitting.bytes_max is not None and whole:
            if view is None:
                view = self._survey.view_of([each.partition for each in whole])
            density = self._survey.density(view)
        return plan.divide(whole, splitting, density)


class _Stretch:
    """A range read as far as it goes: to its end, or to where something was found lost.

    A loss ends the stretch instead of raising through it, so that what was fetched before becomes
    rows; what is ``left`` behind the gap is the next one.
    """

    def __init__(self, options: SourceOptions, whole: Range) -> None:
        self._options = options
        self._whole = whole
        self.left: Range | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield raw batches. Raises DataLoss where ``failOnDataLoss`` is true."""
        whole = self._whole
        try:
            yield from self._batches()
        except (DataLost, OutOfRange, TopicRecreated) as error:
            loss, following = _loss_of(error, whole)
            report([loss], self._options)
            if following < whole.end:
                self.left = structs.replace(whole, start=following)

    def _batches(self) -> Iterator[Chunk]:
        """Read from the files of sealed segments where the options say so, or from the leader."""
        options, whole = self._options, self._whole
        read = batch_reader(client_for(options.client), options, whole.partition)
        return read(
            whole.partition,
            whole.start,
            whole.end,
            committed=options.committed,
            topic_id=parse_uuid(whole.topic_id) if whole.topic_id else None,
        )


def _loss_of(error: _Gone, whole: Range) -> tuple[Loss, int]:
    """Return what is lost of a range, and where it goes on."""
    partition, note = whole.partition, "since this batch was planned"
    match error:
        case DataLost():
            following = min(error.log_start, whole.end)
            note = f"the log starts at {error.log_start} {note}"
            return Loss(partition, Cause.EXPIRED, error.asked, following, note), following
        case OutOfRange():
            note = f"the log ends at {error.log_end} {note}"
            return Loss(partition, Cause.TRUNCATED, error.asked, whole.end, note), whole.end
        case TopicRecreated():
            return Loss(
                partition, Cause.RECREATED, whole.start, whole.end, f"{error} {note}"
            ), whole.end


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [each.cast(field.type) for each, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class BatchReader(_Reading, DataSourceReader):
    """Reads what is there between two boundaries, once."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read, settled now.

        Raises:
            OptionError: a topic is not there, or an option does not fit it. DataLoss: see `Survey`.
        """
        options, survey = self._options, self._survey
        # One look for both boundaries: what comes after it is of the next read.
        view = survey.view()
        starts = survey.settle(options.starting, "startingOffsets", view)
        ends = survey.settle(options.ending, "endingOffsets", view)
        planned = plan.ranges(starts, ends, view.ids)
        kept, losses = plan.check(planned, view)
        report(losses, options)
        return [InputPartition(each) for each in plan.cut(kept, self._divide(kept, view))]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on, in batches that Spark asks for."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._clock = SystemClock()
        self._target: View | None = None  # what was there when an AvailableNow query began
        self._latest: View | None = None  # what was there when last asked
        self._planned: dict[str, object] | None = None  # the newest end that was given out
        self._triggered: int | None = None

    # -- how far ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:
        """Return where a new query begins.

        Raises:
            OptionError: a topic is not there, or an option does not fit it. DataLoss: see `Survey`.
        """
        there = self._survey.view()
        view = self._target or there
        asked = self._survey.settle(self._options.starting, "startingOffsets", view)
        starts, losses = plan.within(asked, view)
        report(losses, self._options)
        return self._keep(starts, starts, view)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return where the next batch ends: ``start`` itself when there is none yet.

        Raises:
            DataLoss: see `Survey`. BadStreamOffset: ``start`` is not ours. OptionError: the
            options cut the batch into too many pieces.
        """
        previous = from_json(start)
        view, starts = self._survey.judge(
            lambda: self._target or self._survey.view_now(),
            lambda now: plan.advance(previous, now),
        )
        self._latest = view
        ends = self._ends(starts, view, limit)
        if ends == starts == previous.ends and view.ids == previous.ids:
            return start
        planned = plan.ranges(starts, ends, view.ids)
        pieces = self._divide(planned, view)
        counts = {each.partition: count for each, count in zip(planned, pieces, strict=True)}
        self._planned = self._keep(starts, ends, view, counts)
        return self._planned

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
        """Note what is there: an AvailableNow query reads up to here and ends."""
        self._target = self._survey.view_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit where an option sets one; which one is looked up in the options."""
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.rows_min is None else ReadMinRows(limits.rows_min)

    def reportLatestOffset(self) -> dict[str, object] | None:
        """Return what was there when last asked, for the query's progress."""
        view = self._latest
        return None if view is None else self._keep(view.latest, view.latest, view)

    # -- what to read ------------------------------------------------------------

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return the ranges of the batch that ends at ``end``, in their pieces.

        Raises:
            DataLoss: see `Survey`. BadStreamOffset: an offset is not ours.
        """
        # The batch of another source of the query: were the start in ``end`` taken here, the batch
        # before would be read again.
        if start == end:
            return []
        until = from_json(end)
        starts = until.starts
        if starts is None:  # kept by Spark's Kafka source, which does not say where it began
            known = from_json(start).ends
            starts = {each: known.get(each, 0) for each in until.ends}
        planned = plan.ranges(starts, until.ends, until.ids)
        if not planned:
            return []
        # A checkpoint of before the pieces were kept, or of Spark's Kafka source: by the options.
        counts = until.pieces
        pieces = (
            self._divide(planned)
            if counts is None
            else [counts[each.partition] for each in planned]
        )
        parts: list[Range | None] = [*plan.cut(planned, pieces)]
        if end != self._planned:  # replayed, maybe long after it was planned
            _, kept = self._survey.judge(
                lambda: self._survey.view_of([each.partition for each in planned]),
                lambda now: plan.check(planned, now),
            )
            parts = plan.trim(plan.cut(planned, pieces), kept)
        return [InputPartition(each) for each in parts]

    def commit(self, end: dict[str, object]) -> None:
        """Show the group's lag: Spark has finished all up to ``end``. It goes on if that fails."""
        if self._options.group is None:
            return
        try:
            ends = from_json(end).ends
            client_for(self._options.client).commit_offsets(self._options.group, ends)
        except (Refused, OSError) as error:
            log.warning("group %s: offsets are not committed: %s", self._options.group, error)
