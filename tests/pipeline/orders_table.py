"""A table job of orders for tests, and what it has written."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from source_cluster import SourceCluster

from ottla.tables.job import parse_job
from ottla.tables.table_writer import run_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, amount double"


class Table:
    """A job of this test, and its table."""

    def __init__(self, spark: "SparkSession", cluster: SourceCluster) -> None:
        self._spark = spark
        self._cluster = cluster
        self.topic = cluster.create("source", 2)
        self.dead = cluster.create("dead", 2)
        self.path = cluster.tmp_path / "table"

    def job(self, **changed: Any) -> Any:
        declared: dict[str, Any] = {
            "topic": self.topic,
            "bootstrap": self._cluster.node.bootstrap,
            "value": {"format": "json", "schema": SCHEMA},
            "table": {"path": str(self.path), "partition_by": ["half"]},
            "columns": {"half": "cast(id % 2 as int)"},
            "required": ["id"],
            "dead_letters": self.dead,
            "source": {"maxOffsetsPerTrigger": 40},
        }
        return parse_job({**declared, **changed})

    def run(self, *, take_over: bool = False, **changed: Any) -> None:
        run_table(self._spark, self.job(**changed), take_over=take_over)

    @property
    def checkpoint(self) -> Path:
        return self.path.parent / "_checkpoints" / "table"

    @property
    def ids(self) -> list[int]:
        rows = self._spark.read.parquet(str(self.path)).select("id").collect()
        return sorted(each["id"] for each in rows)

    @property
    def letters(self) -> dict[str, dict[str, str]]:
        """The dead letters: value -> headers."""
        found = {}
        for row in self._cluster.rows(subscribe=self.dead, includeHeaders="true"):
            message = {each["key"]: each["value"].decode() for each in row["headers"]}
            assert row["value"] not in found, "dead letter written twice"
            found[row["value"].decode()] = message
        return found

    def forget_last_commit(self) -> None:
        commits = self.checkpoint / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def orders(numbers: range) -> list[str]:
    return [json.dumps({"id": each, "amount": each / 2}) for each in numbers]
