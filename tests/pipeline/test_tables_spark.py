"""Tables in Spark: every row is written once, and bad records become dead letters."""

import io
import json
import shutil
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer
from orders_table import SCHEMA, Table, orders
from pyspark.errors import PySparkException, StreamingQueryException
from registry_server import run_registry
from source_cluster import SourceCluster
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.formats.wire_format import framed
from ottla.spark.runner import cause_of
from ottla.tables.compaction import Compaction
from ottla.tables.hadoop_files import SparkFiles, spark_merge
from ottla.tables.job import BadJob
from ottla.tables.job_file import load_job
from ottla.tables.table_writer import newest_per_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: "SparkSession", cluster: SourceCluster) -> Table:
    return Table(spark, cluster)


def test_rows_and_dead_letters_are_written_once_after_replays(cluster, table):
    bad = ["no json", '{"id": "seven"}', '{"amount": 1.5}']
    cluster.produce(table.topic, [*orders(range(50)), *bad], partition=0)
    cluster.produce(table.topic, orders(range(50, 100)), partition=1)
    table.run()
    assert table.ids == list(range(100))
    letters = table.letters
    assert letters.keys() == set(bad)
    assert letters["no json"]["ottla.reason"] == "the value is not JSON"
    assert "does not fit the schema" in letters['{"id": "seven"}']["ottla.reason"]
    assert letters['{"amount": 1.5}']["ottla.reason"] == "column id is missing"
    assert letters["no json"]["ottla.topic"] == table.topic
    assert letters["no json"]["ottla.offset"] == "50"

    table.forget_last_commit()
    cluster.produce(table.topic, orders(range(100, 110)), partition=0)
    table.run()
    assert table.ids == list(range(110))
    assert table.letters.keys() == set(bad)


def test_dead_letters_are_written_once_after_a_changed_cut(cluster, table):
    bad = [f"no json {each}" for each in range(40)]
    cluster.produce(table.topic, bad, partition=0)
    table.run(source={"maxOffsetsPerTrigger": 40})
    assert table.letters.keys() == set(bad)
    table.forget_last_commit()
    cluster.produce(table.topic, orders(range(10)), partition=1)
    table.run(source={"maxOffsetsPerTrigger": 40, "minPartitions": 4})
    assert table.letters.keys() == set(bad)
    assert table.ids == list(range(10))


def test_dead_letters_keep_key_headers_and_timestamp(cluster, table):
    record = {"key": b"k", "headers": {"trace": b"7"}, "timestamp": 1_700_000_000_123}
    cluster.produce(table.topic, ["no json"], partition=1, **record)
    cluster.produce(table.topic, orders(range(3)))
    table.run()
    (letter,) = cluster.rows(subscribe=table.dead, includeHeaders="true")
    assert letter["key"] == b"k"
    assert letter["timestamp"].timestamp() == 1_700_000_000.123
    headers = {each["key"]: each["value"].decode() for each in letter["headers"]}
    assert headers["trace"] == "7"
    assert headers["ottla.timestamp"] == "1700000000123"
    assert table.ids == [0, 1, 2]


def test_misfit_column_stops_the_job_or_makes_dead_letters(spark, cluster, table):
    cluster.produce(table.topic, orders(range(4)))
    table.run()
    wider = {"format": "json", "schema": "id bigint, amount string, note string"}
    values = ['{"id": 4, "amount": "4.5", "note": "n"}', '{"id": 5, "amount": "x"}']
    cluster.produce(table.topic, values)
    with pytest.raises(StreamingQueryException, match="amount is string in the job and double in"):
        table.run(value=wider)
    table.run(value=wider, misfits="dead-letters")
    assert table.ids == [0, 1, 2, 3, 4]
    assert table.letters.keys() == {values[1]}
    read = spark.read.option("mergeSchema", "true").parquet(str(table.path))
    assert [row["amount"] for row in read.where("note = 'n'").collect()] == [4.5]


def test_debezium_events_are_appended_with_their_operation(spark, cluster, table):
    def event(op: str, before: object, after: object) -> str:
        return json.dumps({"op": op, "before": before, "after": after})

    events = [
        event("c", None, {"id": 1, "amount": 1.0}),
        json.dumps({"schema": {}, "payload": json.loads(event("u", None, {"id": 1}))}),
        event("d", {"id": 1}, None),
    ]
    bad = [event("t", None, None), '{"id": 1}', event("c", None, {"id": "x"}), event("u", {}, None)]
    cluster.produce(table.topic, [*events, *bad])
    producer = Producer({"bootstrap.servers": cluster.node.bootstrap})
    producer.produce(table.topic, None, key=b"1")  # follows a delete, for compaction
    assert producer.flush(SECONDS_MAX) == 0
    table.run(value={"format": "debezium", "schema": SCHEMA})
    read = spark.read.parquet(str(table.path))
    assert sorted(row["ottla_op"] for row in read.collect()) == ["c", "d", "u"]
    reasons = {value: headers["ottla.reason"] for value, headers in table.letters.items()}
    assert reasons.keys() == set(bad)
    assert reasons[bad[0]].endswith("not supported: t")
    assert "has no op" in reasons[bad[1]]
    assert "does not fit the schema" in reasons[bad[2]]
    assert reasons[bad[3]] == "the change event has no row for its operation u"


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def test_debezium_events_and_keys_in_avro_are_decoded_by_the_registry(spark, cluster, table):
    def event(op: str, before: object, after: object) -> dict[str, object]:
        return {"op": op, "before": before, "after": after, "ts_ms": 1}

    one = {"id": 1, "amount": 1.5}
    events = [event("c", None, one), event("d", one, None), event("t", None, None)]
    with run_registry() as registry:
        value = registry.add(f"{table.topic}-value", json.dumps(ENVELOPE))
        key = registry.add(f"{table.topic}-key", json.dumps(KEY))
        producer = Producer({"bootstrap.servers": cluster.node.bootstrap})
        good = framed(key, encoded(KEY, {"id": 7}))
        for each in events:
            producer.produce(table.topic, framed(value, encoded(ENVELOPE, each)), good)
        producer.produce(table.topic, None, good)  # follows a delete, for compaction
        producer.produce(table.topic, framed(value, encoded(ENVELOPE, events[0])), b"poison")
        assert producer.flush(SECONDS_MAX) == 0
        spec = {"registry": {"url": registry.url}}
        table.run(
            value={"format": "debezium", **spec},
            record_key={"format": "avro", **spec},
            columns={"half": "cast(id % 2 as int)", "who": "record_key.id"},
        )
    read = spark.read.parquet(str(table.path))
    assert sorted(read.columns) == ["amount", "half", "id", "ottla_batch", "ottla_op", "who"]
    rows = read.select("id", "amount", "ottla_op", "who").collect()
    assert sorted(map(tuple, rows)) == [(1, 1.5, "c", 7), (1, 1.5, "d", 7)]
    letters = cluster.rows(subscribe=table.dead, includeHeaders="true")
    reasons = sorted(
        each["value"].decode()
        for letter in letters
        for each in letter["headers"]
        if each["key"] == "ottla.reason"
    )
    assert len(reasons) == 2
    assert reasons[0].startswith("the key: not in the registry's format")
    assert reasons[1].endswith("is not supported: t")


def encoded(schema: object, datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def test_newest_record_of_a_key_is_chosen_by_offset_and_across_partitions_by_time(spark):
    rows = [
        # key, partition, offset, timestamp, value
        ("a", 0, 1, 900, "old"),
        ("a", 0, 2, 100, "new"),  # a producer's clock went back
        ("b", 0, 9, 100, "before the topic grew"),
        ("b", 1, 0, 200, "after"),
        ("c", 1, 5, 100, "only"),
    ]
    frame = spark.createDataFrame(
        rows, "id string, partition int, offset bigint, timestamp bigint, value string"
    )
    found = newest_per_key(frame, ["id"]).collect()
    assert {row["id"]: row["value"] for row in found} == {"a": "new", "b": "after", "c": "only"}


def test_small_files_of_any_file_system_are_merged_once_though_a_crash_interrupts(
    spark, tmp_path, monkeypatch
):
    for batch in range(5):
        for half in range(2):
            place = tmp_path / "table" / f"half={half}" / f"ottla_batch={batch}"
            spark.createDataFrame([(batch * 2 + half,)], "n int").coalesce(1).write.parquet(
                str(place)
            )
    place = f"file://{tmp_path}/table"
    merging = Compaction(SparkFiles(spark), place, spark_merge(spark))
    numbers = lambda: sorted(  # noqa: E731
        row["n"] for row in spark.read.parquet(str(tmp_path / "table")).collect()
    )
    deleted = SparkFiles.delete

    def crash(files: SparkFiles, path: str) -> None:
        deleted(files, path)
        raise InterruptedError

    with monkeypatch.context() as broken:
        broken.setattr(SparkFiles, "delete", crash)
        with pytest.raises(InterruptedError):
            merging.compact(before=4, files_min=3)
    assert merging.recover() == 3
    assert numbers() == list(range(10))
    assert merging.compact(before=4, files_min=3) == 3
    assert numbers() == list(range(10))
    assert sorted(each.name for each in (tmp_path / "table" / "half=1").iterdir()) == [
        "ottla_batch=3",
        "ottla_batch=4",
    ]
    assert merging.compact(before=4, files_min=3) == 0


def test_small_files_are_merged_while_the_stream_runs(spark, cluster, table):
    small = {"path": str(table.path), "partition_by": ["half"], "compact_files": 3}
    for first in range(0, 40, 10):
        cluster.produce(table.topic, orders(range(first, first + 10)))
        table.run(table=small)
    assert table.ids == list(range(40))
    assert len(list(table.path.glob("half=0/*"))) < 4
    read = spark.read.parquet(str(table.path))
    assert read.where("half = 1").count() == 20


def failure(table: Table, **changed: Any) -> str:
    """Return the line that a user reads when a run fails."""
    with pytest.raises((BadJob, PySparkException)) as failed:
        table.run(**changed)
    line = cause_of(str(failed.value))
    assert "\n" not in line
    return line


def test_failures_are_one_clear_line(cluster, table):
    cluster.produce(table.topic, orders(range(3)))
    line = failure(table, source={"maxOffsetPerTrigger": "5"})
    # Spark passes the names of options in lower case.
    assert "unknown option 'maxoffsetpertrigger'; did you mean 'maxOffsetsPerTrigger'" in line
    assert "no such topic or partition: nowhere" in failure(table, topic="nowhere")


@pytest.mark.nightly
def test_lost_and_deleted_records_are_one_clear_line(cluster, table):
    cluster.produce(table.topic, orders(range(3)))
    table.run()
    cluster.produce(table.topic, orders(range(3, 6)))
    cluster.delete_records(table.topic, 5)
    line = failure(table)
    assert f"{table.topic}-0: offsets 3 to 4: the log starts at 5" in line
    assert "failOnDataLoss=false" in line
    cluster.delete(table.topic)
    assert table.topic in failure(table)
    assert cluster.create("source", 2) == table.topic
    assert "was deleted and recreated" in failure(table)


@pytest.fixture
def ottla(spark, monkeypatch):
    """Run ``ottla pipeline table`` in the existing session."""

    @contextmanager
    def session(name: str, master: str, settings: Mapping[str, str], home: Path, log: Path | None):
        assert (master, settings) == ("local[*]", {"spark.jars": "x.jar"})
        log.touch()
        yield spark

    monkeypatch.setattr("ottla.cli.commands.pipeline_table.table_session", session)

    def run(file: Path, *options: str) -> Result:
        words = ["pipeline", "table", str(file), "--set", "spark.jars=x.jar", "-o", "json"]
        return CliRunner().invoke(app, [*words, *options])

    return run


def test_bad_record_without_dead_letters_fails_the_job(cluster, table, ottla):
    cluster.produce(table.topic, [*orders(range(5)), "no json"], partition=1)
    declared = cluster.tmp_path / "orders.yaml"
    declared.write_text(
        f"""
        topic: {table.topic}
        bootstrap: {cluster.node.bootstrap}
        value: {{format: json, schema: "{SCHEMA}"}}
        table: {{path: table}}
        """
    )
    done = ottla(declared)
    assert done.exit_code == 1
    error = json.loads(done.stderr[done.stderr.index("{") :])["error"]
    message, details = error.splitlines()
    assert f"{table.topic}-1 at offset 5: the value is not JSON" in message
    log = Path(details.removeprefix("details: "))
    assert "the value is not JSON" in log.read_text()
    log.unlink()


def test_avro_job_is_loaded_from_yaml(spark, cluster, table, ottla):
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}],
    }
    (cluster.tmp_path / "order.avsc").write_text(json.dumps(schema))
    parsed = fastavro.parse_schema(schema)
    values = []
    for number in range(20):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"id": number, "amount": 0.5})
        values.append(out.getvalue())
    producer = Producer({"bootstrap.servers": cluster.node.bootstrap})
    for value in values:
        producer.produce(table.topic, value)
    assert producer.flush(SECONDS_MAX) == 0
    declared = cluster.tmp_path / "orders.yaml"
    declared.write_text(
        f"""
        topic: {table.topic}
        bootstrap: {cluster.node.bootstrap}
        value: {{format: avro, schema_file: order.avsc}}
        table: {{path: table}}
        columns: {{place: offset}}
        """
    )
    done = ottla(declared)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"topic": table.topic, "table": str(table.path)}
    assert table.ids == list(range(20))
    assert spark.read.parquet(str(table.path)).columns == ["id", "amount", "place", "ottla_batch"]
    shutil.rmtree(table.checkpoint)
    refused = ottla(declared)
    assert refused.exit_code == 1
    assert "run once with --take-over" in refused.output
    assert ottla(declared, "--take-over").exit_code == 0
    assert len(table.ids) == 40, "nothing is overwritten"


def test_invalid_declaration_is_rejected_before_the_job_starts(spark, table, tmp_path):
    with pytest.raises(BadJob, match="no column 'day'"):
        table.run(table={"path": str(table.path), "partition_by": ["day"]})
    with pytest.raises(BadJob, match=r"value\.schema"):
        table.run(value={"format": "json", "schema": "id bigintt"})
    with pytest.raises(BadJob, match="'offset'"):
        table.run(value={"format": "json", "schema": "offset bigint"})
    with pytest.raises(BadJob, match=r"nowhere\.avsc"):
        table.run(value={"format": "avro", "schema_file": str(tmp_path / "nowhere.avsc")})
    with pytest.raises(BadJob, match=r"nowhere\.yaml"):
        load_job(Path("nowhere.yaml"))
