"""Reads ranges of topics in Spark's tasks, and the batch reader: ``spark.read.format("ottla")``.

Spark creates a reader in a Python process beside the driver, which plans, and pickles it for its
workers, which read. A reader therefore holds values only; each process has its own client. The
reader of streams is in `stream_reader`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.client.blocking.broker_client import client_for
from ottla.client.blocking.range_fetch import DataLost, OutOfRange, TopicRecreated
from ottla.client.fetched import Chunk
from ottla.client.offset_spec import Range
from ottla.formats.arrow_batches import record_batches
from ottla.protocol.uuids import parse_uuid
from ottla.spark import plan
from ottla.spark.columns import chosen_columns
from ottla.spark.data_loss import Survey, report
from ottla.spark.options import SourceOptions
from ottla.spark.plan import Cause, Loss, View
from ottla.spark.read_limits import HAS_READ_LIMITS
from ottla.spark.source_decoding import SourceDecoder
from ottla.spark.tier import batch_reader

_Gone: TypeAlias = DataLost | OutOfRange | TopicRecreated


class RangeReader:
    """The part of all readers that runs in tasks: fetch one range and convert it to Arrow."""

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
        return raw_batches(read, options, whole)


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


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [each.cast(field.type) for each, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def raw_batches(
    read: Callable[..., Iterator[Chunk]], options: SourceOptions, whole: Range
) -> Iterator[Chunk]:
    """Yield the raw batches of a range by ``read``. Raises the errors of `fetch_batches`."""
    return read(
        whole.partition,
        whole.start,
        whole.end,
        committed=options.committed,
        topic_id=parse_uuid(whole.topic_id) if whole.topic_id else None,
    )


class BatchReader(RangeReader, DataSourceReader):
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
