"""Every kind of job on a Spark cluster, or behind Spark Connect; prints a JSON object per job.

    python tests/conformance/spark_cluster_driver.py ADDRESS host:port DIRECTORY [FORMAT]

ADDRESS is that of a master (``spark://``) or of a Spark Connect server (``sc://``). FORMAT is the
format of the table that a table job writes; behind Spark Connect a stream writes parquet files.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ottla.tables.job import TableJob, parse_job

COUNT = 3000
BAD_EVERY = 100


class Jobs:
    """The jobs in one session. Topics exist and are empty."""

    def __init__(self, spark: SparkSession, bootstrap: str, root: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.root = root

    def _read(self, topic: str, reader: Any, **options: str) -> Any:
        reader = reader.format("ottla").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("startingOffsets", "earliest").options(subscribe=topic, **options)

    def _found(self, rows: Any) -> dict[str, int]:
        row = rows.selectExpr("count(*) rows", "count(distinct n) numbers", "sum(n) total").first()
        assert row is not None
        return {"rows": row["rows"], "numbers": row["numbers"], "total": row["total"]}

    def _numbers(self, topic: str) -> Any:
        rows = self._read(topic, self.spark.read, minPartitions="4").load()
        return rows.selectExpr("cast(get_json_object(cast(value as string), '$.n') as bigint) n")

    def batch(self) -> dict[str, int]:
        """Write a batch exactly once, and read it; some values are not JSON."""
        value = f"if(id % {BAD_EVERY} = 7, concat('bad ', id), concat('{{\"n\": ', id, '}}'))"
        rows = self.spark.range(COUNT).repartition(3).selectExpr(f"{value} value")
        writer = rows.write.format("ottla").mode("append").option("topic", "numbers")
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("delivery", "exactly-once").save()
        return self._found(self._numbers("numbers"))

    def stream(self) -> dict[str, int]:
        """Copy the topic with a stream, in several micro-batches and two runs."""
        for limit in ("700", "900"):
            rows = self._read(
                "numbers", self.spark.readStream, maxOffsetsPerTrigger=limit, minPartitions="5"
            ).load()
            writer = rows.select("key", "value").writeStream.format("ottla")
            writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
            writer = writer.option("topic", "copy").option("delivery", "exactly-once")
            writer = writer.option("checkpointLocation", str(self.root / "copy-checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()
        return self._found(self._numbers("copy"))

    def files(self) -> dict[str, int]:
        """Write the topic to parquet files with a stream."""
        rows = self._read("numbers", self.spark.readStream, maxOffsetsPerTrigger="700").load()
        numbers = rows.selectExpr("cast(get_json_object(cast(value as string), '$.n') as bigint) n")
        writer = numbers.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.root / "files-checkpoint"))
        writer.trigger(availableNow=True).start(str(self.root / "files")).awaitTermination()
        return self._found(self.spark.read.parquet(str(self.root / "files")))

    def table(self, job: TableJob) -> dict[str, int]:
        """Write the topic to a table, and what is not JSON to the dead-letter topic."""
        from ottla.tables.table_writer import run_table

        run_table(self.spark, job)
        run_table(self.spark, job)
        table = job.table
        read = (
            self.spark.table(table.name)
            if table.name is not None
            else self.spark.read.format(table.format.value).load(str(table.path))
        )
        dead = self._read("dead", self.spark.read).load().count()
        return {**self._found(read), "dead": dead}

    def refused_table(self, job: TableJob) -> str:
        """Return what a table job says behind Spark Connect."""
        from ottla.tables.table_writer import run_table

        try:
            run_table(self.spark, job)
        except ValueError as error:
            return str(error)
        return "no error"


def job_of(format: str, bootstrap: str, root: Path) -> TableJob:
    table: dict[str, object] = {"format": format}
    if format == "iceberg":
        table |= {"name": "lake.t.numbers", "warehouse": str(root / "lake")}
    else:
        table["path"] = str(root / "table")
    return parse_job(
        {
            "topic": "numbers",
            "bootstrap": bootstrap,
            "value": {"format": "json", "schema": "n bigint"},
            "table": table,
            "checkpoint": str(root / "checkpoint"),
            "dead_letters": "dead",
            "source": {"maxOffsetsPerTrigger": "700", "minPartitions": "5"},
        }
    )


@contextmanager
def session(address: str, root: Path, job: TableJob) -> Iterator[SparkSession]:
    if address.startswith("sc://"):
        spark = SparkSession.builder.remote(address).getOrCreate()
        yield spark
        spark.stop()
        return
    from ottla.spark.runner import table_session
    from ottla.tables.table_writer import session_settings

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    settings = session_settings([job], settings)
    with table_session("jobs", address, settings, root / "spark", root / "spark.log") as spark:
        yield spark


def main() -> None:
    address, bootstrap, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    job = job_of(sys.argv[4], bootstrap, root)
    with session(address, root, job) as spark:
        jobs = Jobs(spark, bootstrap, root)

        def tell(name: str, found: object) -> None:
            print(json.dumps({"job": name, "found": found}), flush=True)

        tell("batch", jobs.batch())
        tell("stream", jobs.stream())
        tell("files", jobs.files())
        if address.startswith("sc://"):
            tell("refused", jobs.refused_table(job))
        else:
            tell("table", jobs.table(job))


if __name__ == "__main__":
    main()
