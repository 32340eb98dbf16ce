"""The tables that a job writes: parquet, Delta and Iceberg behind one interface.

``append`` is exactly once: a replay of a micro-batch replaces or skips what its first
attempt has written. Parquet files are in a directory per micro-batch, Delta stores query and number
with the commit (``txnAppId``, ``txnVersion``), Iceberg in the summary of the snapshot: several
queries can write such a table, and a parquet table belongs to one (`owner`).
``merge`` needs no number: merging the same rows again changes nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F

from ottla.formats.sql_names import spark_name, spark_table, spark_text
from ottla.tables.job import BATCH_COLUMN, CHANGE_COLUMN, Change, TableFormat, TableJob
from ottla.tables.maintenance import statements
from ottla.tables.schema_change import SchemaChange, alterations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH_PROPERTY: Final = "ottla-batch"
_QUERY_PROPERTY: Final = "ottla-query"
_CHANGES: Final = "ottla_changes"


class ParquetTable:
    """Files below a directory, in directories per partition and micro-batch."""

    def __init__(self, spark: "SparkSession", job: TableJob) -> None:
        assert job.table.path is not None, "a parquet table has a path"
        self._spark = spark
        self._job = job
        self._path = job.table.path

    def schema(self) -> "StructType | None":
        """Return the columns of one of the files: reading all of them could take minutes.

        Columns of directories are left out: Spark guesses their types from the names.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        try:
            found = self._spark.read.parquet(self._path).schema
        except AnalysisException:  # no directory, or no file in it
            return None
        aside = {BATCH_COLUMN, *self._job.table.partition_by}
        return StructType([each for each in found.fields if each.name not in aside])

    def is_written(self, query: str, batch: int) -> bool:
        """Return False: a replay replaces its files."""
        return False

    def newest_batch(self, query: str) -> int | None:
        """Return None: `owner` looks at the directories."""
        return None

    def append(self, rows: "DataFrame", query: str, batch: int) -> None:
        """Write the directories of this batch; its number is that of `TableOwner.enter`."""
        numbered = rows.withColumn(BATCH_COLUMN, F.lit(batch).cast("bigint"))
        # Dynamic: replaces only directories of this batch, which exist only in a replay.
        writer = numbered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*self._job.table.partition_by, BATCH_COLUMN).parquet(self._path)

    def merge(self, rows: "DataFrame", keys: Sequence[str]) -> None:
        """Fail: `parse_job` rejects such a job."""
        raise NotImplementedError("rows of parquet files cannot be replaced")

    def change(self, change: SchemaChange) -> None:
        """Do nothing: every file has its own columns."""

    def maintain(self, now_ms: int) -> list[str]:
        """Do nothing: `compaction` compacts after each micro-batch."""
        return []


class _SqlTable:
    """What Delta and Iceberg have in common: MERGE, ALTER TABLE and statements for maintenance."""

    format: TableFormat

    def __init__(self, spark: "SparkSession", job: TableJob) -> None:
        self._spark = spark
        self._job = job

    @property
    def target(self) -> str:
        """The table for SQL."""
        raise NotImplementedError

    def schema(self) -> "StructType | None":
        """Return its columns; None if it does not exist."""
        raise NotImplementedError

    def create(self, rows: "DataFrame") -> None:
        """Create the table, without rows."""
        raise NotImplementedError

    def merge(self, rows: "DataFrame", keys: Sequence[str]) -> None:
        """Merge in one commit."""
        columns = [each for each in rows.columns if each != CHANGE_COLUMN]
        if self.schema() is None:
            self.create(rows.select(*columns).limit(0))
        table = self.schema()
        assert table is not None, "the table was just created"
        rows.createOrReplaceTempView(_CHANGES)
        try:
            rows.sparkSession.sql(
                merge_statement(self.target, _CHANGES, keys, columns, table.names)
            )
        finally:
            rows.sparkSession.catalog.dropTempView(_CHANGES)

    def change(self, change: SchemaChange) -> None:
        """Add and widen columns."""
        for statement in alterations(self.target, change):
            self._spark.sql(statement)

    def maintain(self, now_ms: int) -> list[str]:
        """Run the statements of `maintenance`."""
        spec = self._job.maintenance
        if spec is None or self.schema() is None:
            return []
        files = self._job.table.compact_files
        run = statements(spec, self.format, self.target, files, now_ms)
        for statement in run:
            self._spark.sql(statement)
        return run


class DeltaTable(_SqlTable):
    """A table of Delta Lake, by path or by name."""

    format = TableFormat.DELTA

    @property
    def target(self) -> str:
        """The table for SQL."""
        table = self._job.table
        return (
            spark_table(table.name)
            if table.name is not None
            else f"delta.{spark_name(str(table.path))}"
        )

    def schema(self) -> "StructType | None":
        """Return its columns."""
        from pyspark.errors import AnalysisException

        table = self._job.table
        if table.name is not None:
            found = self._spark.catalog.tableExists(self.target)
            return self._spark.table(self.target).schema if found else None
        assert table.path is not None
        try:
            return self._spark.read.format("delta").load(table.path).schema
        except AnalysisException as error:
            if "DELTA_" in str(error) or "PATH_NOT_FOUND" in str(error):  # no table yet
                return None
            raise

    def is_written(self, query: str, batch: int) -> bool:
        """Return False: Delta itself skips a batch that it has."""
        return False

    def newest_batch(self, query: str) -> int | None:
        """Return the last version that Delta knows of the query."""
        if self.schema() is None:
            return None
        detail = self._spark.sql(f"DESCRIBE DETAIL {self.target}").first()
        assert detail is not None, "the table exists"
        jvm: Any = self._spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self._spark._jsparkSession, detail["location"]
        )
        version = log.unsafeVolatileSnapshot().transactions().get(query)
        return int(version.get()) if version.isDefined() else None

    def append(self, rows: "DataFrame", query: str, batch: int) -> None:
        """Append with the number of the batch, which Delta compares with the last one."""
        self._save(rows, {"txnAppId": query, "txnVersion": str(batch)})

    def create(self, rows: "DataFrame") -> None:
        """Create the table, without rows."""
        self._save(rows, {})

    def _save(self, rows: "DataFrame", options: dict[str, str]) -> None:
        table = self._job.table
        writer = rows.write.format("delta").mode("append").options(**options)
        if table.partition_by:
            writer = writer.partitionBy(*table.partition_by)
        if table.name is not None:
            writer.saveAsTable(self.target, path=table.path)
        else:
            writer.save(table.path)


class IcebergTable(_SqlTable):
    """A table of a catalog of Iceberg."""

    format = TableFormat.ICEBERG

    @property
    def target(self) -> str:
        """The table for SQL."""
        name = self._job.table.name
        assert name is not None, "an Iceberg table has a name"
        return spark_table(name)

    def schema(self) -> "StructType | None":
        """Return its columns."""
        if not self._spark.catalog.tableExists(self.target):
            return None
        return self._spark.table(self.target).schema

    def is_written(self, query: str, batch: int) -> bool:
        """Return whether a snapshot has the number of the batch."""
        numbers = self._numbers(query)
        return numbers is not None and not numbers.where(F.col("number") == batch).isEmpty()

    def newest_batch(self, query: str) -> int | None:
        """Return the highest number in the snapshots that have not expired."""
        numbers = self._numbers(query)
        newest = None if numbers is None else numbers.agg(F.max("number")).first()
        return None if newest is None else newest[0]

    def _numbers(self, query: str) -> "DataFrame | None":
        """Return the micro-batches of a query; None if the table does not exist."""
        if not self._spark.catalog.tableExists(self.target):
            return None
        self._spark.catalog.refreshTable(self.target)  # a catalog may cache an old version
        summary = F.col("summary")
        theirs = self._spark.table(f"{self.target}.snapshots").where(
            summary[_QUERY_PROPERTY] == query
        )
        return theirs.select(summary[_BATCH_PROPERTY].cast("bigint").alias("number"))

    def append(self, rows: "DataFrame", query: str, batch: int) -> None:
        """Append unless the batch is there."""
        if self.is_written(query, batch):
            return
        exists = self.schema() is not None
        writer = rows.writeTo(self.target).option(
            f"snapshot-property.{_BATCH_PROPERTY}", str(batch)
        )
        writer = writer.option(f"snapshot-property.{_QUERY_PROPERTY}", query)
        if exists:
            writer.append()
            return
        if self._job.table.partition_by:
            writer = writer.partitionedBy(
                *(F.col(spark_name(each)) for each in self._job.table.partition_by)
            )
        writer.using("iceberg").create()

    def create(self, rows: "DataFrame") -> None:
        """Create the table, without rows."""
        writer = rows.writeTo(self.target).using("iceberg")
        if self._job.table.partition_by:
            writer = writer.partitionedBy(
                *(F.col(spark_name(each)) for each in self._job.table.partition_by)
            )
        writer.create()


LakeTable: TypeAlias = ParquetTable | DeltaTable | IcebergTable


def target_of(spark: "SparkSession", job: TableJob) -> LakeTable:
    """Return the table of a job."""
    match job.table.format:
        case TableFormat.PARQUET:
            return ParquetTable(spark, job)
        case TableFormat.DELTA:
            return DeltaTable(spark, job)
        case TableFormat.ICEBERG:
            return IcebergTable(spark, job)


def merge_statement(
    target: str, changes: str, keys: Sequence[str], columns: Sequence[str], table: Sequence[str]
) -> str:
    """Return the MERGE of the rows ``changes`` into the table ``target``, both quoted.

    The rows have each key at most once, and the column ``ottla_change``.
    ``columns`` are those of the rows, ``table`` those of the table: a column that only the table
    has keeps its value in a row that is replaced, and is null in a new row.
    """
    assert keys, "a merge needs a key"
    mine = {each.lower() for each in table}
    written = [each for each in columns if each.lower() in mine]
    matches = " AND ".join(f"t.{spark_name(each)} = s.{spark_name(each)}" for each in keys)
    changed = [each for each in written if each not in keys]
    is_delete = f"s.{spark_name(CHANGE_COLUMN)} = {spark_text(Change.DELETE.value)}"
    lines = [
        f"MERGE INTO {target} t",
        f"USING {changes} s",
        f"ON {matches}",
        f"WHEN MATCHED AND {is_delete} THEN DELETE",
    ]
    if changed:
        pairs = ", ".join(f"t.{spark_name(each)} = s.{spark_name(each)}" for each in changed)
        lines.append(f"WHEN MATCHED THEN UPDATE SET {pairs}")
    names = ", ".join(spark_name(each) for each in written)
    values = ", ".join(f"s.{spark_name(each)}" for each in written)
    inserts = f"THEN INSERT ({names}) VALUES ({values})"  # noqa: S608 - names are quoted
    lines.append(f"WHEN NOT MATCHED AND NOT {is_delete} {inserts}")
    return "\n".join(lines)
