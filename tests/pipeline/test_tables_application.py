"""Tables that topics declare by their settings, kept by one application."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import PySparkException
from source_cluster import SourceCluster, wait_until
from tests.patience import SECONDS_MAX

from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.formats.sql_names import table_name
from ottla.runtime.clock import SystemClock
from ottla.tables.application import TablesApplication
from ottla.tables.topic_tables import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables:
    """An application of this test. The node is shared: other topics have no tables."""

    def __init__(self, spark: "SparkSession", cluster: SourceCluster) -> None:
        self.spark = spark
        self.cluster = cluster
        self.warehouse = cluster.tmp_path / "lake"
        client = client_for(ClientSettings((cluster.node.bootstrap,), "test", {}))
        place = Place(str(self.warehouse), cluster.node.bootstrap)
        self.application = TablesApplication(
            spark, client, place, SystemClock(), formats=["parquet"], slots=2
        )

    def create(self, short: str, **settings: str) -> str:
        json_values = {
            "ottla.table.format": "parquet",
            "ottla.table.value.format": "json",
            "ottla.table.value.schema": "id bigint",
        }
        named = {f"ottla.table.{key.replace('_', '.')}": text for key, text in settings.items()}
        topic = self.cluster.create(short)
        self.configure(topic, json_values | named)
        return topic

    def configure(self, topic: str, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for changed in self.cluster.admin.incremental_alter_configs([resource]).values():
            changed.result(SECONDS_MAX)

    def produce(self, topic: str, numbers: range) -> None:
        self.cluster.produce(topic, [json.dumps({"id": each}) for each in numbers])

    def ids(self, topic: str) -> list[int]:
        path = self.warehouse / table_name(topic)
        try:
            rows = self.spark.read.parquet(str(path)).collect()
        except PySparkException:  # no file yet, or the first is being written
            return []
        return sorted(row["id"] for row in rows)

    def report(self, topic: str) -> object:
        return {each.topic: each for each in self.application.reports()}[topic]

    def until(self, condition: object) -> None:
        def step() -> bool:
            self.application.round()
            return bool(condition())  # type: ignore[operator]

        wait_until(step, "the tables", seconds=300)


@pytest.fixture
def tables(spark: "SparkSession", cluster: SourceCluster) -> Iterator[Tables]:
    made = Tables(spark, cluster)
    yield made
    made.application.stop()


def test_topics_become_tables_and_a_failing_one_does_not_stop_the_rest(cluster, tables):
    good, bad = tables.create("good"), tables.create("bad")
    tables.produce(good, range(5))
    cluster.produce(bad, ["no json"])
    tables.until(lambda: tables.application.is_idle and tables.ids(good) == [*range(5)])
    assert tables.report(good).lag == 0
    failed = tables.report(bad)
    assert failed.state == "failed"
    assert "the value is not JSON" in failed.error
    assert f"{bad}-0 at offset 0" in failed.error

    # A topic that asks for a table later, one with settings that contradict each other, and one
    # in a format that the session has no jars for.
    late = tables.create("late")
    merged = tables.create("merged", mode="latest")
    delta = tables.create("delta", format="delta")
    tables.produce(late, range(3))
    tables.produce(good, range(5, 8))
    tables.until(lambda: tables.ids(late) == [0, 1, 2] and tables.ids(good) == [*range(8)])
    assert "cannot be replaced" in tables.report(merged).error
    assert tables.report(merged).state == "invalid"
    assert "restart it with --formats delta,parquet" in tables.report(delta).error

    tables.configure(good, {"ottla.table.format": "none"})
    tables.until(lambda: good not in {each.topic for each in tables.application.reports()})
