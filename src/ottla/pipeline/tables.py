"""Topics that become tables, exactly once.

    from ottla.pipeline.tables import load_job, run_table

    run_table(spark, load_job("orders.yaml"))

A stream hands over micro-batches under numbers that the checkpoint keeps; a restart replays the
last one under its number. What is written is named by that number, so a replay replaces what the
first attempt left: parquet files lie in a directory of the batch, Delta and Iceberg remember it
with the commit, dead letters go through the exactly-once sink.

Rows that cannot be decoded go to the dead-letter topic as they came, with headers that say where
from and why. Without such a topic the first of them stops the job, by name.
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
    """A record that cannot become a row, in a job that has no place for it."""


def load_job(file: str | Path) -> TableJob:
    """Read a job from YAML; file names in it count from where the file is.

    Raises:
        BadJob: it cannot be read, or makes no sense.
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
    """Start, or go on with, a table's stream.

    Raises:
        BadJob: its schema cannot be read or used, or its trigger is none.
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
    """Bring a table up to date, or keep it so until the query is stopped.

    Raises:
        BadJob: as `start_table`. StreamingQueryException: the stream failed; it says why.
    """
    start_table(spark, job).awaitTermination()


# -- one micro-batch ---------------------------------------------------------


def _writer_of(job: TableJob, columns: list[str]) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        decoded = decode(rows, job).persist()
        try:
            bad = decoded.where(F.col(REASON_COLUMN).isNotNull())
            if job.dead_letters is None:
                _refuse(bad)
            elif not bad.isEmpty():
                _write_dead_letters(bad, job)
            good = decoded.where(F.col(REASON_COLUMN).isNull()).select(*columns)
            if not good.isEmpty():
                _WRITERS[job.table.format](good, job, batch)
        finally:
            decoded.unpersist()
        local = None if job.table.path is None else _local(job.table.path)
        if local is not None and job.table.format is TableFormat.PARQUET:
            # Only what is committed: this batch may be replayed, those before it never are.
            compact(local, batch, job.table.compact_files)

    return write


def _refuse(bad: DataFrame) -> None:
    first = bad.select("topic", "partition", "offset", REASON_COLUMN).first()
    if first is not None:
        topic, partition, offset, reason = first
        raise BadRecord(
            f"{topic}-{partition} at offset {offset}: {reason}; "
            "with dead_letters: TOPIC such records are put aside and the job goes on"
        )


def _write_dead_letters(bad: DataFrame, job: TableJob) -> None:
    """Write bad records to the dead-letter topic, as they came, with what is known of them."""
    said = {
        "ottla.topic": F.col("topic"),
        "ottla.partition": F.col("partition").cast("string"),
        "ottla.offset": F.col("offset").cast("string"),
        "ottla.reason": F.col(REASON_COLUMN),
    }
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in said.items()
        )
    )
    assert job.dead_letters is not None
    letters = bad.select("key", "value", headers.alias("headers"))
    writer = letters.write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", job.bootstrap)
    writer = writer.option("topic", job.dead_letters).option("delivery", "exactly-once")
    # A task's dead letters are written once. A schema that was mended before a replay leaves fewer
    # bad records, and that must not stop the job.
    writer = writer.option("onReplayMismatch", "skip")
    writer.option("sinkId", "dead-letters").save()


def _write_parquet(good: DataFrame, job: TableJob, batch: int) -> None:
    assert job.table.path is not None
    numbered = good.withColumn(BATCH_COLUMN, F.lit(batch).cast("bigint"))
    # Dynamic: only directories of this batch are replaced, and only a replay finds any.
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
    """Return the columns of the table: those of the value, then the job's own."""
    aside = {REASON_COLUMN}
    if job.value.format is not ValueFormat.RAW:
        aside |= {*SOURCE_COLUMNS, "value"}
    columns = [each for each in decoded.columns if each not in aside or each in job.columns]
    missing = sorted({*job.table.partition_by} - {*columns})
    if missing:
        raise BadJob(f"table.partition_by: there is no column {missing[0]!r} in {columns}")
    return columns


def _local(path: str) -> Path | None:
    """Return a path of this machine; None for one of another file system."""
    if path.startswith("file:"):
        return Path(path.removeprefix("file:").replace("//", "", 1))
    return None if "://" in path else Path(path)


def _beside(job: TableJob, root: Path) -> TableJob:
    """Make file names that are relative count from ``root``."""
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
