"""Spark over SASL_SSL: source, sink, and a table with dead letters, with Kafka's option names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from tests.patience import SECONDS_MAX

from ottla.tables.job import parse_job
from ottla.tables.table_writer import run_table
from ottla.testing import Cluster, run_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def secure_node() -> Iterator[Cluster]:
    with run_node(processes=True, security="sasl_ssl") as running:
        yield running


def options(node: Cluster, **changed: str) -> dict[str, str]:
    """Options as Spark's Kafka source takes them: Java's names with ``kafka.`` before them."""
    java = {f"kafka.{key}": str(value) for key, value in node.java_config.items()}
    assert java["kafka.security.protocol"] == "SASL_SSL"
    return {**java, **changed}


def produce(node: Cluster, topic: str, values: list[str]) -> None:
    producer = Producer(node.client_config)
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(SECONDS_MAX) == 0


def test_spark_copies_a_topic_into_another_and_into_a_table(
    spark: "SparkSession", secure_node: Cluster, tmp_path: Path
) -> None:
    node, bad = secure_node, "no json"
    produce(node, "orders", [json.dumps({"id": each}) for each in range(40)] + [bad])
    read = spark.read.format("ottla").options(**options(node, subscribe="orders")).load()
    read.selectExpr("value").write.format("ottla").options(**options(node, topic="copied")).mode(
        "append"
    ).save()

    job = parse_job(
        {
            "topic": "copied",
            "bootstrap": node.bootstrap,
            "value": {"format": "json", "schema": "id bigint"},
            "table": {"path": str(tmp_path / "table")},
            "dead_letters": "dead",
            "source": options(node, maxOffsetsPerTrigger="20"),
        }
    )
    run_table(spark, job)
    ids = sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect())
    assert ids == list(range(40))
    dead = spark.read.format("ottla").options(**options(node, subscribe="dead")).load()
    assert [row["value"] for row in dead.select("value").collect()] == [bad.encode()]


def test_wrong_password_fails_the_read_without_showing_it(
    spark: "SparkSession", secure_node: Cluster
) -> None:
    password = str(secure_node.client_config["sasl.password"])
    java = secure_node.java_config["sasl.jaas.config"].replace(password, "wrong-giraffe")
    wrong = options(secure_node, subscribe="orders", **{"kafka.sasl.jaas.config": java})
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ottla").options(**wrong).load().count()
    assert "uthentication" in str(caught.value)
    assert "giraffe" not in str(caught.value)
