"""Tables of one format, through all that a job can do with them; prints a JSON object per part.

    python tests/conformance/lakehouse_driver.py FORMAT host:port DIRECTORY [PART ...]

Run as a process of its own, with the Python of an environment whose Spark fits the format.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ottla.spark.runner import table_session
from ottla.tables.job import TableJob, parse_job
from ottla.tables.table_writer import run_table, session_settings

SCHEMA = "id bigint, amount double"
KEY = {"id": "cast(cast(key as string) as bigint)"}


class Lake:
    """The tables of one format in a session."""

    def __init__(self, format: str, bootstrap: str, root: Path) -> None:
        self.format = format
        self.bootstrap = bootstrap
        self.root = root
        self.spark: SparkSession

    def job(self, name: str, **changed: Any) -> TableJob:
        table = {"format": self.format, **changed.pop("table", {})}
        if self.format == "iceberg":
            table |= {"name": f"lake.shop.{name}", "warehouse": str(self.root / "lake")}
        else:
            table |= {"path": str(self.root / name)}
        declared = {
            "topic": name,
            "bootstrap": self.bootstrap,
            "value": {"format": "json", "schema": SCHEMA},
            "table": table,
            "checkpoint": str(self.checkpoint(name)),
        }
        return parse_job({**declared, **changed})

    def produce(self, topic: str, records: list[tuple[str | None, str | None]]) -> None:
        rows = self.spark.createDataFrame(records, "key string, value string").coalesce(1)
        writer = rows.write.format("ottla").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.bootstrap).save()

    def run(self, job: TableJob) -> None:
        run_table(self.spark, job)

    def counts(self, topic: str) -> list[Any]:
        """Return the number of records of each partition of a topic."""
        reader = self.spark.read.format("ottla").option("subscribe", topic)
        rows = reader.option("kafka.bootstrap.servers", self.bootstrap).load()
        return rows.groupBy("partition").count().collect()

    def read(self, name: str) -> Any:
        if self.format == "iceberg":
            return self.spark.table(f"lake.shop.{name}")
        return self.spark.read.format(self.format).load(str(self.root / name))

    def rows(self, name: str, *columns: str) -> list[Any]:
        return sorted(
            ([*row] for row in self.read(name).select(*columns).collect()),
            key=lambda row: [str(each) for each in row],
        )

    def checkpoint(self, name: str) -> Path:
        return self.root / f"checkpoint-{name}"

    def forget_last_commit(self, name: str) -> None:
        commits = self.checkpoint(name) / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def files(self, name: str) -> int:
        if self.format == "iceberg":
            return int(self.spark.table(f"lake.shop.{name}.files").count())
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.`{self.root / name}`").first()
        assert detail is not None
        return int(detail["numFiles"])

    def versions(self, name: str) -> list[int]:
        """Return the number of rows of each version, oldest first."""
        if self.format == "iceberg":
            ids = self.spark.table(f"lake.shop.{name}.snapshots").orderBy("committed_at")
            counts = []
            for row in ids.collect():
                version = f"SELECT * FROM lake.shop.{name} VERSION AS OF {row['snapshot_id']}"
                counts.append(self.spark.sql(version).count())
            return counts
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.root / name}`")
        numbers = sorted(row["version"] for row in history.collect())
        reader = self.spark.read.format("delta")
        path = str(self.root / name)
        return [reader.option("versionAsOf", each).load(path).count() for each in numbers]


def order(number: int, **more: Any) -> tuple[str, str]:
    return str(number), json.dumps({"id": number, "amount": number / 2, **more})


def append(lake: Lake) -> object:
    """Fill a partitioned table, lose the last commit, go on."""
    halves = {"columns": {"half": "cast(id % 2 as int)"}, "table": {"partition_by": ["half"]}}
    source = {"maxOffsetsPerTrigger": "10", "startingOffsets": "earliest"}
    lake.produce("append", [order(each) for each in range(30)])
    lake.run(lake.job("append", source=source, **halves))
    lake.forget_last_commit("append")
    lake.run(lake.job("append", source=source, **halves))
    lake.produce("append", [order(each) for each in range(30, 40)])
    lake.run(lake.job("append", source=source, **halves))
    lake.forget_last_commit("append")
    lake.run(lake.job("append", source=source, **halves))
    return lake.rows("append", "id", "half")


def time_travel(lake: Lake) -> object:
    """Read every version of the table that `append` has written."""
    return lake.versions("append")


def evolve(lake: Lake) -> object:
    """Add a column, then change a type with each answer to it."""
    lake.produce("evolve", [order(1)])
    lake.run(lake.job("evolve"))
    wider = {"format": "json", "schema": f"{SCHEMA}, note string"}
    lake.produce("evolve", [order(2, note="two")])
    lake.run(lake.job("evolve", value=wider))
    lake.produce("evolve", [order(3)])
    lake.run(lake.job("evolve"))  # an older job writes no note
    text = {"format": "json", "schema": "id bigint, amount string"}
    lake.produce("evolve", [("4", '{"id": 4, "amount": "4.5"}'), ("5", '{"id": 5, "amount": "x"}')])
    try:
        lake.run(lake.job("evolve", value=text))
        stopped = ""
    except Exception as error:
        stopped = str(error)
    answer = {"misfits": "dead-letters", "dead_letters": "evolve-dead"}
    lake.run(lake.job("evolve", value=text, **answer))
    reader = lake.spark.read.format("ottla").option("subscribe", "evolve-dead")
    reader = reader.option("kafka.bootstrap.servers", lake.bootstrap)
    letters = reader.load().selectExpr("cast(value as string)").collect()
    return {
        "rows": lake.rows("evolve", "id", "amount", "note"),
        "stopped": "column amount is string in the job and double in the table" in stopped,
        "letters": [row[0] for row in letters],
    }


def compaction(lake: Lake) -> object:
    """Write a file per batch, then maintain the table."""
    for number in range(4):
        lake.produce("compaction", [order(number)])
        lake.run(lake.job("compaction"))
    before = lake.files("compaction")
    lake.produce("compaction", [order(4)])
    often = {"every": "1 ms", "vacuum": "7 days", "expire": "1 ms"}
    job = lake.job("compaction", maintenance=often, table={"compact_files": 2})
    lake.run(job)
    lake.forget_last_commit("compaction")
    lake.run(job)
    return {
        "before": before,
        "after": lake.files("compaction"),
        "rows": lake.rows("compaction", "id"),
    }


def upsert(lake: Lake) -> object:
    """Insert, replace and delete by key, with several changes of a key in one batch."""
    job = lake.job("upsert", mode="upsert", key=KEY)
    lake.produce("upsert", [order(1), order(2), order(3), order(2, amount=7.0), ("3", None)])
    lake.run(job)
    first = lake.rows("upsert", "id", "amount")
    lake.produce("upsert", [("1", None), order(2, amount=8.0), order(3, amount=9.0), ("99", None)])
    lake.run(job)
    lake.forget_last_commit("upsert")
    lake.run(job)
    return {"first": first, "second": lake.rows("upsert", "id", "amount")}


def latest(lake: Lake) -> object:
    """The latest value of every key of a topic, as bytes."""
    job = lake.job("latest", mode="latest", value={"format": "raw"})
    lake.produce("latest", [("a", "1"), ("b", "1"), ("a", "2")])
    lake.run(job)
    lake.produce("latest", [("b", None), ("c", "1")])
    lake.run(job)
    texts = lake.read("latest").selectExpr("cast(key as string)", "cast(value as string)")
    return sorted([row[0], row[1]] for row in texts.collect())


def debezium(lake: Lake) -> object:
    """Change events of a database, with and without their schema."""

    def event(op: str, before: object, after: object) -> dict[str, object]:
        return {"op": op, "before": before, "after": after, "ts_ms": 1, "source": {"db": "shop"}}

    def row(number: int, amount: float) -> dict[str, object]:
        return {"id": number, "amount": amount}

    events: list[tuple[str | None, str | None]] = [
        ("1", json.dumps(event("c", None, row(1, 1.0)))),
        ("2", json.dumps({"schema": {}, "payload": event("r", None, row(2, 2.0))})),
        ("1", json.dumps(event("u", row(1, 1.0), row(1, 1.5)))),
        ("3", json.dumps(event("c", None, row(3, 3.0)))),
        ("2", json.dumps(event("d", row(2, 2.0), None))),
        ("2", None),
    ]
    lake.produce("debezium", events)
    job = lake.job(
        "debezium", mode="upsert", key=["id"], value={"format": "debezium", "schema": SCHEMA}
    )
    lake.run(job)
    return lake.rows("debezium", "id", "amount")


def writers(lake: Lake) -> object:
    """Two queries on one table, both with a replay."""
    other = {"topic": "writers-2", "checkpoint": str(lake.checkpoint("writers-2"))}
    jobs = [lake.job("writers"), lake.job("writers", **other)]
    lake.produce("writers", [order(each) for each in range(5)])
    lake.produce("writers-2", [order(each) for each in range(5, 10)])
    for job in jobs:
        lake.run(job)
    for name in ("writers", "writers-2"):
        lake.forget_last_commit(name)
    for job in jobs:
        lake.run(job)
    return lake.rows("writers", "id")


def lost_checkpoint(lake: Lake) -> object:
    """Go on behind the rows of the table, with a new checkpoint."""
    lake.produce("lost", [order(each) for each in range(5)])
    lake.run(lake.job("lost"))
    shutil.rmtree(lake.checkpoint("lost"))
    ends = {row["partition"]: row["count"] for row in lake.counts("lost")}
    lake.produce("lost", [order(each) for each in range(5, 10)])
    behind = json.dumps({"lost": {str(each): ends.get(each, 0) for each in range(2)}})
    lake.run(lake.job("lost", source={"startingOffsets": behind}))
    return lake.rows("lost", "id")


def old_copy(lake: Lake) -> object:
    """Restore an old checkpoint, whose next micro-batch has the number of another one."""
    place, copy = lake.checkpoint("old"), lake.root / "copy-of-old"
    lake.produce("old", [order(each) for each in range(5)])
    lake.run(lake.job("old"))
    shutil.copytree(place, copy)
    lake.produce("old", [order(each) for each in range(5, 10)])
    lake.run(lake.job("old"))
    newest = lake.root / "newest-of-old"
    place.rename(newest)
    copy.rename(place)
    lake.produce("old", [order(each) for each in range(10, 15)])
    try:
        lake.run(lake.job("old"))
        refused = ""
    except Exception as error:
        refused = str(error)
    rows = lake.rows("old", "id")
    shutil.rmtree(place)
    newest.rename(place)
    lake.run(lake.job("old"))
    return {"refused": "it is an old copy" in refused, "rows": rows, "then": lake.rows("old", "id")}


def changed_mode(lake: Lake) -> object:
    """Merge a micro-batch, and replay it in mode append."""
    lake.produce("mode", [order(each) for each in range(5)])
    lake.run(lake.job("mode", mode="upsert", key=KEY))
    lake.forget_last_commit("mode")
    try:
        lake.run(lake.job("mode"))
        refused = ""
    except Exception as error:
        refused = str(error)
    lake.run(lake.job("mode", mode="upsert", key=KEY))
    return {"refused": "begun in mode upsert" in refused, "rows": lake.rows("mode", "id")}


PARTS = (
    append,
    time_travel,
    evolve,
    compaction,
    upsert,
    latest,
    debezium,
    writers,
    lost_checkpoint,
    old_copy,
    changed_mode,
)


def main() -> None:
    format, bootstrap, place = sys.argv[1:4]
    lake = Lake(format, bootstrap, Path(place))
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(lake.root / "warehouse"),
        **session_settings([lake.job("any")], {}),
    }
    with table_session("lakehouse", "local[2]", settings, lake.root / "spark") as spark:
        lake.spark = spark
        for part in PARTS:
            if sys.argv[4:] and part.__name__ not in sys.argv[4:]:
                continue
            print(json.dumps({"part": part.__name__, "found": part(lake)}), flush=True)


if __name__ == "__main__":
    main()
