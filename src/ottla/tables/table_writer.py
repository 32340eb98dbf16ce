"""Writes topics to tables, exactly once.

    from ottla.pipeline import load_job, run_table

    run_table(spark, load_job("orders.yaml"))

The checkpoint of a stream numbers its micro-batches; a restart replays the last one under the same
number. Output is named by that number, so a replay replaces the output of the first attempt (see
`targets`); dead letters are written by the exactly-once sink. A run that could not tell its
own output from another's is rejected when it starts (`owner`, `checkpoint_record`).

Records that cannot be decoded are written unchanged to the dead-letter topic, with headers for
their origin and the reason. Without such a topic the first bad record fails the job.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ottla.formats.sql_names import spark_name
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Clock
from ottla.spark.columns import COLUMNS, HEADERS
from ottla.spark.spark_output import START_LIMIT, is_start_limit
from ottla.tables.checkpoint_record import check_record, keep_record
from ottla.tables.compaction import Compaction
from ottla.tables.files import HIDDEN
from ottla.tables.hadoop_files import SparkFiles, files_of, spark_merge
from ottla.tables.job import (
    CHANGE_COLUMN,
    HEADERS_COLUMN,
    OP_COLUMN,
    REASON_COLUMN,
    BadJob,
    Change,
    Misfits,
    TableFormat,
    TableJob,
    ValueFormat,
)
from ottla.tables.lakehouse import settings_for
from ottla.tables.maintenance import is_due
from ottla.tables.owner import Progress, TableOwner, check_newest, read_progress
from ottla.tables.schema_change import Misfit, aligned_names, compare, explained
from ottla.tables.targets import LakeTable, target_of
from ottla.tables.value_decoding import SOURCE_COLUMNS, decode

__all__ = [
    "BadRecord",
    "MisfitColumns",
    "newest_per_key",
    "run_table",
    "session_settings",
    "start_table",
    "with_misfits",
]

log: Final = logging.getLogger(__name__)
START_ATTEMPTS: Final = 3
_QUERY_ID: Final = "sql.streaming.queryId"
AVAILABLE_NOW: Final = "available-now"
LISTINGS_PER_MERGE: Final = 4
"""How often the files of a parquet table are listed until a partition can have enough of them."""


class MisfitColumns(ValueError):
    """Columns of a job do not fit its table."""


class BadRecord(ValueError):
    """A record that cannot become a row, in a job without a dead-letter topic."""


def session_settings(jobs: Iterable[TableJob], given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session in which these jobs run: ``given``, and jars and catalogs.

    Raises:
        NoRuntime: the format of a table has no release for this Spark.
    """
    tables = [job.table for job in jobs]
    warehouses = {
        each.name.partition(".")[0]: each.warehouse
        for each in tables
        if each.name is not None and each.warehouse is not None
    }
    formats = [each.format.value for each in tables]
    return settings_for(formats, pyspark.__version__, given, warehouses)


def start_table(spark: SparkSession, job: TableJob, *, take_over: bool = False) -> StreamingQuery:
    """Start or resume the stream of a table.

    ``take_over``: write a parquet table though it belongs to another query.

    Raises:
        BadJob: the schema cannot be read or used, the trigger is invalid, the session is one of
            Spark Connect, or the table is not that of the checkpoint (`owner`).
    """
    _check_session(spark)
    rows = spark.readStream.format("ottla").options(**job.source_options).load()
    columns = _table_columns(decode(rows, job), job)
    run = _check_table(spark, job, take_over=take_over)
    writer = rows.writeStream.foreachBatch(_BatchWriter(job, columns, SystemClock(), run))
    writer = writer.option("checkpointLocation", job.checkpoint_path)
    writer = writer.queryName(f"table {job.table.name or job.table.path}")
    if job.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=job.trigger).start()


class _Run(msgspec.Struct, frozen=True):
    """What is known of a table when a run starts; ``owner`` only of a parquet table."""

    progress: Progress
    owner: TableOwner | None = None

    def is_replay(self, batch: int) -> bool:
        """Return whether an earlier run has begun the micro-batch."""
        return self.progress.has_begun and batch == self.progress.batch


def _check_table(spark: SparkSession, job: TableJob, *, take_over: bool) -> _Run:
    """Check that the checkpoint is the one that the table was written with. Raises BadJob."""
    place = files_of(spark, job.checkpoint_path)
    progress, target = read_progress(*place), target_of(spark, job)
    check_record(*place, job, progress, lambda: _exists(spark, job, target))
    if job.table.format is not TableFormat.PARQUET:
        if progress.query is not None:
            name = job.table.name or job.table.path or ""
            check_newest(target.newest_batch(progress.query), progress, name)
        return _Run(progress)
    assert job.table.path is not None, "a parquet table has a path"
    owner = TableOwner(*files_of(spark, job.table.path))
    owner.check(progress, take_over=take_over)
    _compaction(spark, job).recover()  # of a crash of this query
    return _Run(progress, owner)


def _exists(spark: SparkSession, job: TableJob, target: LakeTable) -> bool:
    """Return whether the table is there; a parquet table may have no rows, but is claimed."""
    if job.table.format is TableFormat.PARQUET and job.table.path is not None:
        files, path = files_of(spark, job.table.path)
        if files.exists(f"{path.rstrip('/')}/{HIDDEN}"):
            return True
    return target.schema() is not None


def _check_session(spark: SparkSession) -> None:
    """Reject a session of Spark Connect: files and the number of a batch are read in the JVM."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BadJob(
            "table jobs do not run behind Spark Connect: use `ottla pipeline table --master "
            "spark://host:7077`, or a pipeline with `ottla pipeline run --remote`"
        )


def run_table(spark: SparkSession, job: TableJob, *, take_over: bool = False) -> None:
    """Update a table, once or until the query is stopped; ``take_over`` as in `start_table`.

    A stream that ends because one of Spark's Python processes did not start in time is started
    again, a few times: the limit cannot be configured, and the checkpoint has the position.

    Raises:
        BadJob: as `start_table`. StreamingQueryException: the stream failed.
    """
    for attempt in range(START_ATTEMPTS):
        query = start_table(spark, job, take_over=take_over)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if attempt + 1 == START_ATTEMPTS or not is_start_limit(str(error)):
                raise
            log.warning("%s: %s; trying again", job.topic, START_LIMIT)
        else:
            return


# -- one micro-batch ---------------------------------------------------------


class _BatchWriter:
    """Writes the micro-batches of one run of a job."""

    def __init__(self, job: TableJob, columns: list[str], clock: Clock, run: _Run) -> None:
        self._job = job
        self._run = run
        self._columns = columns
        self._clock = clock
        self._is_recorded = False
        self._is_compared = False  # the columns of rows and table, once per run
        self._misfits: tuple[Misfit, ...] = ()
        self._table: StructType | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        job, query = self._job, _query_id(rows)
        target = target_of(rows.sparkSession, job)
        number = self._enter(query, batch)
        if not target.is_written(query, number):
            # Before the write: the newest micro-batch must be found until it is committed.
            self._maintain(rows.sparkSession, target)
        decoded = self._fitting(decode(rows, job), target).persist()
        try:
            bad = decoded.where(F.col(REASON_COLUMN).isNotNull())
            if job.dead_letters is None:
                _fail_on_bad_record(bad)
            elif not bad.isEmpty():
                _write_dead_letters(bad, job)
            good = decoded.where(F.col(REASON_COLUMN).isNull())
            good = good.where(F.col(CHANGE_COLUMN) != Change.NONE.value)
            self._remove_leftovers(batch, number)
            if not good.isEmpty():
                self._write(good, target, query, number)
        finally:
            decoded.unpersist()
        if job.table.format is TableFormat.PARQUET and batch % _compaction_interval(job) == 0:
            # Only committed batches: this one may be replayed, earlier ones never are.
            _compaction(rows.sparkSession, job).compact(number, job.table.compact_files)

    def _enter(self, query: str, batch: int) -> int:
        """Return the number of a micro-batch in the table. Raises NotOwner."""
        owner = self._run.owner
        return batch if owner is None else owner.enter(query, batch)

    def _remove_leftovers(self, batch: int, number: int) -> None:
        """Remove what an earlier run has written of a micro-batch to a parquet table.

        A changed job may put the rows into other partitions: the files would not be replaced.
        """
        if self._run.owner is not None and self._run.is_replay(batch):
            self._run.owner.remove(number)

    def _write(self, good: DataFrame, target: LakeTable, query: str, batch: int) -> None:
        self._record(good.sparkSession, has_rows=False)
        if self._job.mode.merges:
            newest = newest_per_key(good, self._job.key_columns)
            target.merge(newest.select(*self._columns, CHANGE_COLUMN), self._job.key_columns)
        else:
            target.append(_aligned(good.select(*self._columns), self._table), query, batch)
        self._record(good.sparkSession, has_rows=True)
        self._is_recorded = True

    def _record(self, spark: SparkSession, *, has_rows: bool) -> None:
        """Let the checkpoint remember the table, once per run."""
        if not self._is_recorded:
            place = files_of(spark, self._job.checkpoint_path)
            keep_record(*place, self._job, has_rows=has_rows)

    def _fitting(self, decoded: DataFrame, target: LakeTable) -> DataFrame:
        """Let the table take the columns, and give rows that do not fit a reason.

        Raises:
            MisfitColumns: a column does not fit, and the job says to stop.
        """
        if not self._is_compared:
            table = target.schema()
            if table is not None:
                change = compare(table, self._compared_schema(decoded), self._job.table.format)
                if change.misfits and self._job.misfits is Misfits.STOP:
                    raise MisfitColumns(explained(change.misfits))
                target.change(change)
                self._misfits = change.misfits
                self._table = target.schema()
            self._is_compared = True
        return with_misfits(decoded, self._misfits)

    def _compared_schema(self, decoded: DataFrame) -> StructType:
        aside = (
            {*self._job.table.partition_by}
            if self._job.table.format is TableFormat.PARQUET
            else set()
        )
        return decoded.select(*(each for each in self._columns if each not in aside)).schema

    def _maintain(self, spark: SparkSession, target: LakeTable) -> None:
        """Compact and clean up if it is time; when it was done is kept beside the checkpoint."""
        job = self._job
        if job.maintenance is None:
            return
        files, place = SparkFiles(spark), f"{job.checkpoint_path}/ottla-maintenance"
        kept, now = files.read(place), self._clock.now()
        last = int(kept) if kept is not None and kept.strip().isdigit() else None
        if is_due(job.maintenance, last, now):
            target.maintain(now)
            files.write(place, str(now))


def newest_per_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the newest record of each key.

    In a partition this is the one with the highest offset. A key is in several partitions only if
    their number has changed; then it is the one with the latest timestamp.
    """
    columns, rank = rows.columns, "ottla_rank"
    keys = [spark_name(each) for each in keys]
    within = Window.partitionBy(*keys, "partition").orderBy(F.col("offset").desc())
    across = Window.partitionBy(*keys).orderBy(
        F.col("timestamp").desc(), F.col("partition").desc(), F.col("offset").desc()
    )
    for window in (within, across):
        ranked = rows.withColumn(rank, F.row_number().over(window))
        rows = ranked.where(F.col(rank) == 1).select(*columns)
    return rows


def with_misfits(decoded: DataFrame, misfits: Sequence[Misfit]) -> DataFrame:
    """Convert columns to the table's types, with a reason for rows that cannot be converted."""
    for each in misfits:
        name = each.path[0]  # a struct is converted as a whole
        value = F.col(spark_name(name))
        fits = (
            F.expr(f"try_cast({spark_name(name)} as {each.sql})")
            if len(each.path) == 1
            else (F.lit(None).cast(decoded.schema[name].dataType))
        )
        is_lost = value.isNotNull() & fits.isNull()
        reason = F.when(is_lost, F.lit(str(each)))
        decoded = decoded.withColumn(REASON_COLUMN, F.coalesce(F.col(REASON_COLUMN), reason))
        decoded = decoded.withColumn(name, fits)
    return decoded


def _aligned(rows: DataFrame, table: StructType | None) -> DataFrame:
    """Return the rows with the columns of an existing table: in its order, with its types."""
    if table is None:
        return rows
    types = {each.name: each.dataType for each in table.fields}
    found = [
        (F.lit(None) if mine is None else F.col(spark_name(mine))).cast(types[name]).alias(name)
        for name, mine in aligned_names(table, rows.columns)
    ]
    known = {each.lower() for each in table.names}
    # A parquet table takes new columns as they come.
    found += [F.col(spark_name(each)) for each in rows.columns if each.lower() not in known]
    return rows.select(*found)


def _compaction(spark: SparkSession, job: TableJob) -> Compaction:
    path = job.table.path
    assert path is not None, "a parquet table has a path"
    return Compaction(*files_of(spark, path), spark_merge(spark))


def _compaction_interval(job: TableJob) -> int:
    """Return after how many micro-batches the files are listed: each adds a file to a partition."""
    return max(1, job.table.compact_files // LISTINGS_PER_MERGE)


def _fail_on_bad_record(bad: DataFrame) -> None:
    first = bad.select("topic", "partition", "offset", REASON_COLUMN).first()
    if first is not None:
        topic, partition, offset, reason = first
        raise BadRecord(
            f"{topic}-{partition} at offset {offset}: {reason}; "
            "set dead_letters: TOPIC to write such records there and continue"
        )


def _write_dead_letters(bad: DataFrame, job: TableJob) -> None:
    """Write bad records unchanged to the dead-letter topic, with their origin and reason."""
    details = {
        "ottla.topic": F.col("topic"),
        "ottla.partition": F.col("partition").cast("string"),
        "ottla.offset": F.col("offset").cast("string"),
        "ottla.timestamp": F.unix_millis("timestamp").cast("string"),
        "ottla.reason": F.col(REASON_COLUMN),
    }
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in details.items()
        )
    )
    for name in (HEADERS, HEADERS_COLUMN):
        if name in bad.columns:
            kept = F.coalesce(F.col(name), F.array().cast(COLUMNS[HEADERS]))
            headers = F.concat(kept, headers)
    assert job.dead_letters is not None
    letters = bad.select("key", "value", "timestamp", headers.alias("headers"))
    writer = letters.write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", job.bootstrap)
    writer = writer.options(**job.security_options)
    writer = writer.option("topic", job.dead_letters).option("delivery", "exactly-once")
    # A task's dead letters are written once. A schema that was fixed before a replay leaves fewer
    # bad records, and that must not fail the job; more of them would be lost.
    writer = writer.option("onReplayMismatch", "skip-fewer")
    writer = writer.option("keepTimestamps", "true")
    writer.option("sinkId", "dead-letters").save()


def _query_id(rows: DataFrame) -> str:
    found = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert found is not None, "a micro-batch belongs to a query"
    return found


# -- names -------------------------------------------------------------------


def _table_columns(decoded: DataFrame, job: TableJob) -> list[str]:
    """Return the columns of the table: those of the value, then the computed ones."""
    aside = {REASON_COLUMN, CHANGE_COLUMN, HEADERS_COLUMN}
    if job.mode.merges:
        aside.add(OP_COLUMN)
    if job.value.format is not ValueFormat.RAW:
        aside |= {*SOURCE_COLUMNS, "value", HEADERS}
    chosen = {*job.columns, *job.key_columns}
    columns = [each for each in decoded.columns if each not in aside or each in chosen]
    lacking = sorted({*job.key_columns} - {*columns})
    if lacking:
        raise BadJob(f"key: there is no column {lacking[0]!r} in {columns}")
    missing = sorted({*job.table.partition_by} - {*columns})
    if missing:
        raise BadJob(f"table.partition_by: there is no column {missing[0]!r} in {columns}")
    return columns
