"""The sinks that Spark sees: ``df.write.format("ottla")`` and ``df.writeStream``.

Spark pickles a writer from the driver to its workers, calls ``write`` in each task and ``commit``
or ``abort`` in the driver. Tasks are implemented in `ottla.spark.sink_task`.

A stream has the identity of its query, which the checkpoint stores: a restart replays the same
batch numbers under the same id. A batch write has an id of its own, so that a retried task finds
what its first attempt has committed; its markers are removed at the end. A batch write in
``foreachBatch`` with a ``sinkId`` has the identity of the stream: a replay of the micro-batch
writes nothing twice. Without a ``sinkId`` it could not be distinguished from another write of the
same micro-batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.client.blocking.raw_producer import Region
from ottla.protocol.types import TopicPartition
from ottla.runtime.randomness import SystemRandom, draw_uuid
from ottla.spark.option_values import OptionError
from ottla.spark.options import Delivery, SinkOptions
from ottla.spark.sink_encoding import encode_batches
from ottla.spark.sink_task import (
    Gathered,
    Regions,
    SinkTask,
    Task,
    forget,
    prepare,
    write_gathered,
)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_TEXT: Final = (StringType, BinaryType)


class SchemaError(ValueError):
    """The columns of a query do not fit a record."""


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver: its identity and, with ``atomicBatches``, its rows."""

    sink_id: str
    batch: int
    rows: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    committed: int = 0  # rows that the task has written itself, in an earlier attempt

    @classmethod
    def of_gathered(cls, task: Task, gathered: Gathered) -> "Written":
        """Create a message with encoded rows."""
        rows = [
            (partition.topic, partition.partition, region.count, bytes(region.data))
            for partition, theirs in gathered.regions.items()
            for region in theirs
        ]
        return cls(task.sink_id, task.batch, rows, gathered.committed)

    def gathered(self) -> Gathered:
        """Return the encoded rows."""
        found: Regions = {}
        for topic, number, count, data in self.rows:
            theirs = found.setdefault(TopicPartition(topic, number), [])
            theirs.append(Region(bytearray(data), count, 0))
        return Gathered(found, self.committed)


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(
            schema,
            options.topic,
            _encoded_columns(options),
            keep_timestamps=options.keep_timestamps,
        )
        self._options = options
        self._sink_id = _named(options, draw_uuid(SystemRandom().bytes).hex())
        prepare(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        identity = _task_identity()
        sink_id, batch = self._sink_id, 0
        if self._options.sink_id is not None and identity.query is not None:
            sink_id, batch = _named(self._options, identity.query), identity.batch
        return _write(self._options, Task(sink_id, identity.task, batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the write after all tasks."""
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        if self._options.atomic_batches:
            _commit_gathered(self._options, messages)
        elif any(isinstance(each, Written) and each.sink_id == self._sink_id for each in messages):
            forget(self._options, self._sink_id, len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write; rows that tasks have committed remain."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream, micro-batch by micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(
            schema,
            options.topic,
            _encoded_columns(options),
            keep_timestamps=options.keep_timestamps,
        )
        self._options = options
        prepare(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows of a micro-batch."""
        identity = _task_identity()
        if identity.query is None:
            raise RuntimeError(
                "this version of Spark does not provide the query and batch to tasks; "
                "exactly-once needs both: use Spark 4.3, or delivery=at-least-once"
            )
        sink_id, query = _named(self._options, identity.query), identity.query
        task = Task(sink_id, identity.task, identity.batch, query)
        return _write(self._options, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Finish a micro-batch after all tasks."""
        if self._options.atomic_batches:
            _commit_gathered(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort a micro-batch; Spark replays it."""


def _write(options: SinkOptions, task: Task, batches: Iterator[pa.RecordBatch]) -> Written:
    work = SinkTask(options, task)
    batches = encode_batches(batches, options.encoding, options.topic)
    if options.atomic_batches:
        return Written.of_gathered(task, work.gather(batches))
    work.write(batches)
    return Written(task.sink_id, task.batch)


def _commit_gathered(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [each for each in messages if isinstance(each, Written)]
    if written:
        task = Task(written[0].sink_id, -1, written[0].batch)
        write_gathered(options, task, (each.gathered() for each in written))


def _named(options: SinkOptions, unique: str) -> str:
    """Prefix a unique id with the user's ``sinkId``."""
    return unique if options.sink_id is None else f"{options.sink_id}-{unique}"


class _TaskIdentity(NamedTuple):
    """The identity of a task; ``query`` is None outside of a stream."""

    task: int
    query: str | None
    batch: int


def _task_identity() -> _TaskIdentity:
    context = TaskContext.get()
    assert context is not None, "write is called in a task"
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        return _TaskIdentity(context.partitionId(), None, 0)
    return _TaskIdentity(context.partitionId(), query, int(batch))


# -- the schema --------------------------------------------------------------


def _encoded_columns(options: SinkOptions) -> frozenset[str]:
    return frozenset() if options.encoding is None else frozenset(options.encoding.parts)


def check_schema(
    schema: StructType,
    topic: str | None,
    encoded: frozenset[str] = frozenset(),
    *,
    keep_timestamps: bool = False,
) -> None:
    """Check that rows can become records. Columns in ``encoded`` may have any type.

    Raises:
        SchemaError: a column is missing or has the wrong type.
    """
    columns = {each.name: each.dataType for each in schema.fields}
    if "value" not in columns:
        raise SchemaError(f"column 'value' is missing; columns are {sorted(columns)}")
    if topic is None and "topic" not in columns:
        raise SchemaError("set option 'topic' or add a column 'topic'")
    for name in ("value", "key"):
        is_right = name in encoded or isinstance(columns.get(name), _TEXT)
        _check_type(columns, name, "string or binary", is_right)
    _check_type(columns, "topic", "string", isinstance(columns.get("topic"), StringType))
    _check_type(columns, "partition", "int", isinstance(columns.get("partition"), IntegerType))
    _check_type(
        columns,
        "headers",
        "array<struct<key:string,value:binary>>",
        _is_headers(columns.get("headers")),
    )
    if keep_timestamps:
        if "timestamp" not in columns:
            raise SchemaError("keepTimestamps needs a column 'timestamp'")
        is_right = isinstance(columns["timestamp"], TimestampType)
        _check_type(columns, "timestamp", "timestamp", is_right)


def _check_type(columns: dict[str, DataType], name: str, wanted: str, is_right: bool) -> None:
    if name in columns and not is_right:
        raise SchemaError(f"column '{name}' is {columns[name].simpleString()}, expected {wanted}")


def _is_headers(found: DataType | None) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = {each.name: each.dataType for each in found.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], BinaryType)
    )


def batch_writer(options: dict[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Create the writer of ``df.write``.

    Raises:
        OptionError: an option is unknown or invalid. SchemaError: rows cannot become records.
    """
    if overwrite:
        raise OptionError("a topic cannot be overwritten: write with mode('append')")
    return BatchWriter(SinkOptions.parse(options), schema)


def stream_writer(options: dict[str, str], schema: StructType) -> StreamWriter:
    """Create the writer of ``df.writeStream``. Raises as `batch_writer`."""
    return StreamWriter(SinkOptions.parse(options), schema)
