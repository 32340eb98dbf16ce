"""Writes topics to tables, exactly once.

    from ottla.pipeline.tables import load_job, run_table

    run_table(spark, load_job("orders.yaml"))

The checkpoint of a stream numbers its micro-batches; a restart replays the last one under the same
number. Output is named by that number, so a replay replaces the output of the first attempt:
parquet files are in a directory per batch, Delta and Iceberg store the number with the commit, and
dead letters are written by the exactly-once sink.

Records that cannot be decoded are written unchanged to the dead-letter topic, with headers for
their origin and the reason. Without such a topic the first bad record fails the job.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.decoding import SOURCE_COLUMNS, decode
from ottla.pipeline.small_files import compact, recover
from ottla.pipeline.table_job import (
    BATCH_COLUMN,
    REASON_COLUMN,
    BadJob,
    TableFormat,
    TableJob,
    ValueFormat,
    parse_job,
)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "ottla-batch"
_QUERY_PROPERTY: Final = "ottla-query"
AVAILABLE_NOW: Final = "available-now"


class BadRecord(ValueError):
    """A record that cannot become a row, in a job without a dead-letter topic."""


def load_job(file: str | Path) -> TableJob:
    """Read a job from YAML; file names in it are relative to the file.

    Raises:
        BadJob: it cannot be read, or is invalid.
    """
    import yaml

    where = Path(file)
    try:
        declared = yaml.safe_load(where.read_text())
    except OSError as error:
        raise BadJob(f"{where}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise BadJob(f"{where}: not YAML: {error}") from error
    try:
        return _beside(parse_job(declared), where.resolve().parent)
    except BadJob as error:
        raise BadJob(f"{where}: {error}") from error


def start_table(spark: SparkSession, job: TableJob) -> StreamingQuery:
    """Start or resume the stream of a table.

    Raises:
        BadJob: the schema cannot be read or used, or the trigger is invalid.
    """
    rows = spark.readStream.format("ottla").options(**job.source_options).load()
    columns = _table_columns(decode(rows, job), job)
    if job.table.path is not None and (local := _local(job.table.path)) is not None:
        recover(local)
    writer = rows.writeStream.foreachBatch(_writer_of(job, columns))
    writer = writer.option("checkpointLocation", job.checkpoint_path)
    writer = writer.queryName(f"table {job.table.name or job.table.path}")
    if job.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=job.trigger).start()


def run_table(spark: SparkSession, job: TableJob) -> None:
    """Update a table, once or until the query is stopped.

    Raises:
        BadJob: as `start_table`. StreamingQueryException: the stream failed.
    """
    start_table(spark, job).awaitTermination()


# -- one micro-batch ---------------------------------------------------------


def _writer_of(job: TableJob, columns: list[str]) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        decoded = decode(rows, job).persist()
        try:
            bad = decoded.where(F.col(REASON_COLUMN).isNotNull())
            if job.dead_letters is None:
                _fail_on_bad_record(bad)
            elif not bad.isEmpty():
                _write_dead_letters(bad, job)
            good = decoded.where(F.col(REASON_COLUMN).isNull()).select(*columns)
            if not good.isEmpty():
                _WRITERS[job.table.format](good, job, batch)
        finally:
            decoded.unpersist()
        local = None if job.table.path is None else _local(job.table.path)
        if local is not None and job.table.format is TableFormat.PARQUET:
            # Only committed batches: this one may be replayed, earlier ones never are.
            compact(local, batch, job.table.compact_files)

    return write


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
        "ottla.reason": F.col(REASON_COLUMN),
    }
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in details.items()
        )
    )
    assert job.dead_letters is not None
    letters = bad.select("key", "value", headers.alias("headers"))
    writer = letters.write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", job.bootstrap)
    writer = writer.options(**job.security_options)
    writer = writer.option("topic", job.dead_letters).option("delivery", "exactly-once")
    # A task's dead letters are written once. A schema that was fixed before a replay leaves fewer
    # bad records, and that must not fail the job.
    writer = writer.option("onReplayMismatch", "skip")
    writer.option("sinkId", "dead-letters").save()


def _write_parquet(good: DataFrame, job: TableJob, batch: int) -> None:
    assert job.table.path is not None
    numbered = good.withColumn(BATCH_COLUMN, F.lit(batch).cast("bigint"))
    # Dynamic: replaces only directories of this batch, which exist only in a replay.
    writer = numbered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*job.table.partition_by, BATCH_COLUMN).parquet(job.table.path)


def _write_delta(good: DataFrame, job: TableJob, batch: int) -> None:
    writer = good.write.format("delta").mode("append")
    if job.table.partition_by:
        writer = writer.partitionBy(*job.table.partition_by)
    writer = writer.option("txnAppId", _query_id(good)).option("txnVersion", batch)
    if job.table.name is not None:
        writer.saveAsTable(job.table.name, path=job.table.path)
    else:
        writer.save(job.table.path)


def _write_iceberg(good: DataFrame, job: TableJob, batch: int) -> None:
    name, spark, query = job.table.name, good.sparkSession, _query_id(good)
    assert name is not None
    if spark.catalog.tableExists(name):
        done = spark.table(f"{name}.snapshots").where(
            (F.col("summary")[_QUERY_PROPERTY] == query)
            & (F.col("summary")[_BATCH_PROPERTY] == str(batch))
        )
        if not done.isEmpty():
            return
    writer = good.writeTo(name).option(f"snapshot-property.{_BATCH_PROPERTY}", str(batch))
    writer = writer.option(f"snapshot-property.{_QUERY_PROPERTY}", query)
    if spark.catalog.tableExists(name):
        writer.append()
        return
    if job.table.partition_by:
        writer = writer.partitionedBy(*(F.col(each) for each in job.table.partition_by))
    writer.using("iceberg").create()


_WRITERS: Final = {
    TableFormat.PARQUET: _write_parquet,
    TableFormat.DELTA: _write_delta,
    TableFormat.ICEBERG: _write_iceberg,
}


def _query_id(rows: DataFrame) -> str:
    found = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert found is not None, "a micro-batch belongs to a query"
    return found


# -- names -------------------------------------------------------------------


def _table_columns(decoded: DataFrame, job: TableJob) -> list[str]:
    """Return the columns of the table: those of the value, then the computed ones."""
    aside = {REASON_COLUMN}
    if job.value.format is not ValueFormat.RAW:
        aside |= {*SOURCE_COLUMNS, "value"}
    columns = [each for each in decoded.columns if each not in aside or each in job.columns]
    missing = sorted({*job.table.partition_by} - {*columns})
    if missing:
        raise BadJob(f"table.partition_by: there is no column {missing[0]!r} in {columns}")
    return columns


def _local(path: str) -> Path | None:
    """Return a local path; None for a path of another file system."""
    if path.startswith("file:"):
        return Path(path.removeprefix("file:").replace("//", "", 1))
    return None if "://" in path else Path(path)


def _beside(job: TableJob, root: Path) -> TableJob:
    """Resolve relative file names against ``root``."""
    import msgspec.structs

    def absolute(path: str | None) -> str | None:
        if path is None or "://" in path or path.startswith("file:"):
            return path
        return str(root / path)

    table = msgspec.structs.replace(job.table, path=absolute(job.table.path))
    value = msgspec.structs.replace(job.value, schema_file=absolute(job.value.schema_file))
    return msgspec.structs.replace(
        job, table=table, value=value, checkpoint=absolute(job.checkpoint)
    )
