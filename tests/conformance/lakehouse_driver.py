"""One declared table in Delta or Iceberg: filled, its last commit lost, gone on with; prints it.

    python tests/conformance/lakehouse_driver.py FORMAT host:port TOPIC DIRECTORY JAR[,JAR...]

Run as a process of its own, because a format's jar has to be there when a session starts.
"""

import json
import sys
from pathlib import Path

from ottla.pipeline.runner import table_session
from ottla.pipeline.table_job import parse_job
from ottla.pipeline.tables import run_table

LAKE = "spark.sql.catalog.lake"
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        LAKE: "org.apache.iceberg.spark.SparkCatalog",
        f"{LAKE}.type": "hadoop",
    },
}


def main() -> None:
    name, bootstrap, topic, place, jars = sys.argv[1:]
    root = Path(place)
    table = {"path": str(root / "table")} if name == "delta" else {"name": "lake.shop.orders"}
    job = parse_job(
        {
            "topic": topic,
            "bootstrap": bootstrap,
            "value": {"format": "json", "schema": "id bigint, amount double"},
            "table": {"format": name, "partition_by": ["half"], **table},
            "columns": {"half": "cast(id % 2 as int)"},
            "checkpoint": str(root / "checkpoint"),
            "source": {"maxOffsetsPerTrigger": 10},
        }
    )
    settings = {
        **SETTINGS[name],
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        f"{LAKE}.warehouse": str(root / "lake"),
    }
    with table_session(f"table {topic}", "local[2]", settings, root / "spark") as spark:
        run_table(spark, job)
        commits = root / "checkpoint" / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        run_table(spark, job)
        found = (
            spark.read.format("delta").load(str(root / "table"))
            if name == "delta"
            else spark.table("lake.shop.orders")
        )
        rows = [(row["id"], row["half"]) for row in found.collect()]
    print("FOUND", json.dumps(sorted(rows)))


if __name__ == "__main__":
    main()
