"""Times a table format: ``tables_driver.py FORMAT host:port DIRECTORY ROUNDS``.

Run by the Python of an environment whose Spark fits the format. Prints a JSON object with the
seconds of each round: appends from the topic and from parquet, upserts from the topic, and the
MERGE of the same rows, parsed before, from parquet.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ottla.spark.runner import check_spark, table_session
from ottla.tables.job import TableJob, parse_job
from ottla.tables.table_writer import run_table, session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id bigint, what string, amount bigint"
PLACE = "cast(cast(key as string) as bigint)"


def upsert_job(format: str, bootstrap: str, root: Path, number: int) -> TableJob:
    """Declare the table that is filled by upserts; each number reads the topic anew."""
    table: dict[str, Any] = {"format": format}
    if format == "iceberg":
        table |= {"name": "lake.bench.upsert", "warehouse": str(root / "lake")}
    else:
        table["path"] = str(root / "upsert")
    merging = {"mode": "upsert", "key": {"place": PLACE}} if format != "parquet" else {}
    return parse_job(
        {
            "topic": "upsert",
            "bootstrap": bootstrap,
            "value": {"format": "json", "schema": SCHEMA},
            "table": table,
            "checkpoint": str(root / f"checkpoint{number}"),
            **merging,
        }
    )


class Tables:
    """The tables of one format in one session."""

    def __init__(self, spark: "SparkSession", format: str, bootstrap: str, root: Path) -> None:
        self._spark = spark
        self._format = format
        self._bootstrap = bootstrap
        self._root = root

    def prepare(self) -> dict[str, Callable[[int], None]]:
        """Write the parquet files to compare with; return what is timed, by name."""
        topic = self._topic("append")
        topic.write.parquet(str(self._root / "source"))
        files = self._spark.read.parquet(str(self._root / "source"))
        works: dict[str, Callable[[int], None]] = {
            "topic": lambda _: self._write(topic, "append"),
            "parquet": lambda _: self._write(files, "append"),
        }
        if self._format == "parquet":
            return works
        parsed = f"from_json(cast(value as string), '{SCHEMA}') as it"
        changes = self._topic("upsert").selectExpr(f"{PLACE} as place", parsed)
        changes.select("place", "it.*").write.parquet(str(self._root / "changes"))
        return {**works, "upsert": self._upsert, "merge": self._merge}

    def _topic(self, name: str) -> "DataFrame":
        reader = self._spark.read.format("ottla").option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("subscribe", name).load()

    def _write(self, rows: "DataFrame", name: str) -> None:
        """Write a table anew."""
        if self._format == "iceberg":
            rows.writeTo(f"lake.bench.{name}").using("iceberg").createOrReplace()
        else:
            rows.write.format(self._format).mode("overwrite").save(str(self._root / name))

    def _upsert(self, number: int) -> None:
        run_table(self._spark, upsert_job(self._format, self._bootstrap, self._root, number))

    def _merge(self, number: int) -> None:
        """Do what the job does, without a stream and without JSON; the first round inserts."""
        changes = self._spark.read.parquet(str(self._root / "changes"))
        if number == 0:
            self._write(changes.limit(0), "merge")
        target = "lake.bench.merge" if self._format == "iceberg" else f"delta.`{self._root}/merge`"
        changes.createOrReplaceTempView("changes")
        self._spark.sql(
            f"MERGE INTO {target} t USING (SELECT place, max_by(struct(id, what, amount), id) as it"
            " FROM changes GROUP BY place) c ON t.place = c.place"
            " WHEN MATCHED THEN UPDATE SET id = it.id, what = it.what, amount = it.amount"
            " WHEN NOT MATCHED THEN INSERT (place, id, what, amount)"
            " VALUES (c.place, it.id, it.what, it.amount)"
        )


def main() -> None:
    """Measure in alternation, after one round to warm up."""
    format, bootstrap, place, rounds = sys.argv[1:]
    check_spark()
    root = Path(place)
    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        **session_settings([upsert_job(format, bootstrap, root, 0)], {}),
    }
    log = root / "spark.log"
    with table_session("bench", "local[2]", settings, root / "spark", log) as spark:
        if format == "iceberg":
            spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        works = Tables(spark, format, bootstrap, root).prepare()
        found: dict[str, list[float]] = {name: [] for name in works}
        for number in range(int(rounds) + 1):
            for name, work in works.items():
                began = perf_counter()
                work(number)
                if number:
                    found[name].append(perf_counter() - began)
            done = ", ".join(f"{name} {each[-1]:.1f} s" for name, each in found.items() if each)
            print(f"{format}: round {number} of {rounds}: {done or 'warm'}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
