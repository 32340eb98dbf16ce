"""Poison values of every format, and topics that change during a run: one clear line each.

The rules behind these messages have tests of their own, without Spark, in `make test`: values in
`test_table_values` and `test_registry_spark`, changed topics in `test_source_stream`.
"""

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from registry_server import run_registry
from source_cluster import SourceCluster, wait_until
from test_table_values import descriptors, order
from tests.patience import SECONDS_MAX

from ottla.formats.wire_format import framed
from ottla.spark.runner import cause_of
from ottla.tables.job import parse_job
from ottla.tables.table_writer import run_table, start_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]

SCHEMA = "id bigint, at timestamp, tags array<string>"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
DEEP = b'{"id": ' + b"[" * 5000 + b"]" * 5000 + b"}"
Values = dict[bytes | None, str]


def avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"id": number})
    return out.getvalue()


class Format:
    """A value format: its declaration, a good value, and bad ones with their reasons."""

    def __init__(self, value: dict[str, Any], good: bytes, bad: Values) -> None:
        self.value = value
        self.good = good
        self.bad = bad


def json_format(root: Any, registry: Any, topic: str) -> Format:
    bad: Values = {
        b"no json": "the value is not JSON",
        b'{"id": 1': "not JSON",
        b"\xff\xfe\x00": "not JSON",
        b"": "not JSON",
        b"[1, 2]": "does not fit the schema",
        b"7": "does not fit the schema",
        b'{"id": "seven"}': "does not fit the schema",
        b'{"id": 1e30}': "does not fit the schema",
        b'{"id": 1, "at": "yesterday"}': "does not fit the schema",
        b'{"id": 1, "tags": {"a": 1}}': "does not fit the schema",
        DEEP: "not JSON",
        None: "null",
    }
    return Format({"format": "json", "schema": SCHEMA}, b'{"id": 1}', bad)


def debezium_format(root: Any, registry: Any, topic: str) -> Format:
    bad: Values = {
        b"no json": "not JSON",
        b"{}": "it has no op",
        b'{"op": "x", "after": {"id": 1}}': "operation of the change event is not supported: x",
        b'{"op": "t"}': "not supported: t",
        b'{"op": "c", "after": null}': "no row for its operation c",
        b'{"op": "u", "after": {"id": "x"}}': "does not fit the schema",
        b"\xff\xfe\x00": "not JSON",
    }
    good = b'{"op": "c", "after": {"id": 1}}'
    return Format({"format": "debezium", "schema": SCHEMA}, good, bad)


def avro_format(root: Any, registry: Any, topic: str) -> Format:
    (root / "order.avsc").write_text(json.dumps(AVRO))
    bad: Values = {
        b"": "not Avro",
        b"\xff" * 20: "not Avro",
        avro(1) + b"!": "1 bytes remain",
        None: "the value is null",
    }
    return Format({"format": "avro", "schema_file": str(root / "order.avsc")}, avro(1), bad)


def protobuf_format(root: Any, registry: Any, topic: str) -> Format:
    (root / "order.desc").write_bytes(descriptors())
    bad: Values = {
        b"\xff": "not a Order",
        b"\x0a\xff\xff\xff\xff\x0f": "not a Order",
        order(total=2**64 - 1): "does not fit a bigint",
        None: "the value is null",
    }
    file = str(root / "order.desc")
    value = {"format": "protobuf", "schema_file": file, "message": "shop.Order"}
    return Format(value, order(id=1), bad)


def registry_format(root: Any, registry: Any, topic: str) -> Format:
    number = registry.add(f"{topic}-value", json.dumps(AVRO))
    bad: Values = {
        b"poison": "does not begin with a schema id",
        framed(99, b"x"): "schema id 99 is unknown",
        framed(number, b"\xff" * 20): "",
        framed(number, b""): "",
        b"\0": "does not begin with a schema id",
    }
    value = {"format": "avro", "registry": {"url": registry.url}}
    return Format(value, framed(number, avro(1)), bad)


FORMATS: dict[str, Callable[[Any, Any, str], Format]] = {
    "json": json_format,
    "debezium": debezium_format,
    "avro": avro_format,
    "protobuf": protobuf_format,
    "registry": registry_format,
}


def job_of(cluster: SourceCluster, topic: str, **more: Any) -> Any:
    declared = {
        "topic": topic,
        "bootstrap": cluster.node.bootstrap,
        "value": {"format": "json", "schema": SCHEMA},
        "table": {"path": str(cluster.tmp_path / "table")},
    }
    return parse_job({**declared, **more})


@pytest.mark.parametrize("name", FORMATS)
def test_poison_values_become_dead_letters_or_fail_the_job_in_one_line(
    spark: "SparkSession", cluster: SourceCluster, name: str
) -> None:
    topic, dead = cluster.create("source"), cluster.create("dead")
    with run_registry() as registry:
        format = FORMATS[name](cluster.tmp_path, registry, topic)
        producer = Producer({"bootstrap.servers": cluster.node.bootstrap})
        for value in (format.good, *format.bad, format.good):
            producer.produce(topic, value, b"key", 0)
        assert producer.flush(SECONDS_MAX) == 0
        run_table(spark, job_of(cluster, topic, value=format.value, dead_letters=dead))
        found = spark.read.parquet(str(cluster.tmp_path / "table")).select("id").collect()
        assert [row["id"] for row in found] == [1, 1]
        letters = cluster.rows(subscribe=dead, includeHeaders="true")
        assert [each["value"] for each in letters] == [*format.bad]
        for letter, expected in zip(letters, format.bad.values(), strict=True):
            headers = {each["key"]: each["value"].decode() for each in letter["headers"]}
            assert expected in headers["ottla.reason"], headers
            assert "\n" not in headers["ottla.reason"]
        other = {"path": str(cluster.tmp_path / "other")}
        with pytest.raises(PySparkException) as failed:
            run_table(spark, job_of(cluster, topic, value=format.value, table=other))
    line = cause_of(str(failed.value))
    assert "\n" not in line
    assert f"{topic}-0 at offset 1: " in line
    assert "set dead_letters: TOPIC" in line


def recreate(cluster: SourceCluster, topic: str) -> None:
    cluster.delete(topic)
    assert cluster.create("source") == topic
    cluster.produce(topic, ['{"id": 9}'] * 3)


def expire(cluster: SourceCluster, topic: str) -> None:
    """Let the stream miss records: it reads nothing while it is busy with a batch."""
    for _ in range(20):
        cluster.produce(topic, ['{"id": 7}'] * 500)
        cluster.delete_records(topic, -1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cluster, topic: cluster.delete(topic), "from offset 5 on: it was deleted"),
        (recreate, "was deleted and recreated"),
        (expire, "the log starts at"),
    ],
    ids=["deleted", "recreated", "expired"],
)
def test_topic_that_changes_during_a_run_ends_it_in_one_line(
    spark: "SparkSession",
    cluster: SourceCluster,
    change: Callable[[SourceCluster, str], None],
    message: str,
) -> None:
    topic = cluster.create("source")
    cluster.produce(topic, ['{"id": 1}'] * 5)
    job = job_of(cluster, topic, trigger="100 milliseconds")
    query = start_table(spark, job)
    try:
        wait_until(lambda: query.lastProgress, "the first batch")
        change(cluster, topic)
        with pytest.raises(PySparkException, match=message) as failed:
            query.awaitTermination(int(SECONDS_MAX))
    finally:
        query.stop()
    line = cause_of(str(failed.value))
    assert "\n" not in line
    assert topic in line
