"""A stream to be killed: ``kills_driver.py FLOW host:port DIRECTORY MASTER OPTIONS``.

FLOW is ``topic``, ``parquet``, ``delta`` or ``iceberg``: the topic ``numbers`` is copied there, for
ever. OPTIONS are options of the source as JSON. With OPTIONS ``read``, the result is printed: a
JSON list of the numbers in it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ottla.spark.runner import table_session
from ottla.tables.job import TableJob, parse_job

TRIGGER = "200 milliseconds"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def job_of(flow: str, bootstrap: str, root: Path, options: dict[str, str]) -> TableJob:
    table: dict[str, object] = {"format": flow, "compact_files": 8}
    if flow == "iceberg":
        table |= {"name": "lake.t.numbers", "warehouse": str(root / "lake")}
    else:
        table["path"] = str(root / "table")
    declared = {
        "topic": "numbers",
        "bootstrap": bootstrap,
        "value": {"format": "json", "schema": "n bigint"},
        "table": table,
        "checkpoint": str(root / "checkpoint"),
        "dead_letters": "dead",
        "trigger": TRIGGER,
        "source": options,
    }
    if flow != "parquet":
        declared["maintenance"] = {"every": "20 seconds", "expire": "1 ms", "vacuum": None}
    return parse_job(declared)


def copy(spark: Any, bootstrap: str, root: Path, options: dict[str, str]) -> Any:
    source = {"subscribe": "numbers", "startingOffsets": "earliest", **options}
    frame = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    frame = frame.options(**source).load().selectExpr("key", "value")
    writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", "copy").option("delivery", "exactly-once")
    writer = writer.option("kafka.delivery.timeout.ms", "120000")
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(processingTime=TRIGGER).start()


def note(phase: str) -> None:
    """Write when a phase of the start has ended; see `commit_gaps`."""
    print(f"PHASE {phase} {time.time():.3f}", flush=True)


def main() -> None:
    note("imports")
    flow, bootstrap, place, master, text = sys.argv[1:]
    root = Path(place)
    options = {"kafka.default.api.timeout.ms": "120000"}
    if text != "read":
        options |= json.loads(text)
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    if flow != "topic":
        from ottla.tables.table_writer import session_settings, start_table

        job = job_of(flow, bootstrap, root, options)
        settings = session_settings([job], settings)
    log = root / "spark.log"
    with table_session("kills", master, settings, root / "spark", log) as spark:
        if text == "read":
            frame = (
                spark.table("lake.t.numbers")
                if flow == "iceberg"
                else spark.read.format(flow).load(str(root / "table"))
            )
            print("ROWS", json.dumps([row["n"] for row in frame.select("n").collect()]))
            return
        note("session")
        query = (
            copy(spark, bootstrap, root, options) if flow == "topic" else start_table(spark, job)
        )
        note("query")
        query.awaitTermination()


if __name__ == "__main__":
    main()
