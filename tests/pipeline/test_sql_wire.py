"""`ottla sql` over a real node: columns, formats, pushdown, output, following, failures."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.client.blocking.broker_client import BrokerClient, ClientSettings
from ottla.sql.session import SqlFailed, SqlOptions, SqlSession
from ottla.sql.topics import TopicFormats
from ottla.testing import Cluster

PARTITIONS = 3
RECORDS = 900
# Later than retention, and not in the order of offsets: every seventh record is half a minute late.
BEGAN_MS = (int(time.time()) - 3600) * 1000

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "offset", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def timestamp_of(number: int) -> int:
    return BEGAN_MS + number * 1000 - (30_000 if number % 7 == 0 else 0)


def avro(datum: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), datum)
    return out.getvalue()


def protobuf_files() -> tuple[bytes, type]:
    """Return a descriptor set, and the class of its message ``shop.Item``."""
    file = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Item")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="name", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), made


@pytest.fixture(scope="module")
def bootstrap(spark_node: Cluster) -> str:
    """A node with the topics of these tests."""
    admin = AdminClient({"bootstrap.servers": spark_node.bootstrap})
    counts = {"orders": PARTITIONS, "items": 1, "readings": 1, "goods": 1, "mixed": 1, "shop.a": 1}
    made = admin.create_topics([NewTopic(f"sql-{n}", c, 1) for n, c in counts.items()])
    for future in made.values():
        future.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": spark_node.bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(
            "sql-orders",
            json.dumps({"id": number, "amount": number / 2, "where": {"city": f"c{number % 5}"}}),
            f"k{number % 10}",
            partition=number % PARTITIONS,
            timestamp=timestamp_of(number),
            headers=[("n", str(number).encode())] if number % 2 else None,
        )
        if number % 30 == 29:  # several batches in each partition
            producer.flush(SECONDS_MAX)
    for number in range(10):
        producer.produce("sql-items", f"item {number}", f"k{number}")
        producer.produce("sql-readings", avro({"id": number, "offset": 0.5, "note": None}))
        producer.produce(
            "sql-goods", protobuf_files()[1](id=number, name=f"n{number}").SerializeToString()
        )
        producer.produce("sql-mixed", b"\xff\x01" if number == 5 else b'{"x": 1}')
    producer.produce("sql-readings", None, "gone")
    producer.produce("sql-shop.a", "one")
    assert producer.flush(SECONDS_MAX) == 0
    return spark_node.bootstrap


def ottla_sql(bootstrap: str, query: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["sql", query, "-b", bootstrap, *arguments])


def rows(bootstrap: str, query: str, *arguments: str) -> list[dict]:
    done = ottla_sql(bootstrap, query, *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def session(bootstrap: str) -> Iterator["type[Opened]"]:
    yield Opened.at(bootstrap)
    Opened.close()


class Opened:
    """Sessions of one test, closed at its end."""

    bootstrap = ""
    clients: ClassVar[list[BrokerClient]] = []

    @classmethod
    def at(cls, bootstrap: str) -> "type[Opened]":
        cls.bootstrap = bootstrap
        return cls

    @classmethod
    def run(cls, query: str, **options: object) -> tuple[list[dict], SqlSession]:
        client = BrokerClient(ClientSettings((cls.bootstrap,), "test", {}))
        cls.clients.append(client)
        chosen = SqlOptions(TopicFormats({}, {}), **options)
        with SqlSession(client, chosen, lambda note: None) as session:
            found = pa.Table.from_batches(list(session.run(query))).to_pylist()
        return found, session

    @classmethod
    def close(cls) -> None:
        while cls.clients:
            cls.clients.pop().close()


class TestColumns:
    def test_json_fields_and_source_columns_are_selectable(self, bootstrap: str) -> None:
        (row,) = rows(bootstrap, 'select * from "sql-orders" where id = 7')
        assert row["key"] == "k7"
        assert json.loads(row["value"])["id"] == 7
        assert (row["topic"], row["partition"], row["offset"]) == ("sql-orders", 1, 2)
        assert row["timestamp"].endswith("Z")
        assert row["headers"] == [{"key": "n", "value": "7"}]
        assert (row["id"], row["amount"], row["where"]) == (7, 3.5, {"city": "c2"})

    def test_only_fields_that_a_query_names_are_extracted(self, bootstrap: str) -> None:
        client = BrokerClient(ClientSettings((bootstrap,), "test", {}))
        query = "select sql from duckdb_views() where view_name = 'sql-orders'"
        with SqlSession(client, SqlOptions(TopicFormats({}, {})), lambda note: None) as session:
            session.prepare('select sum(Id) from "sql-orders"')
            (view,) = pa.Table.from_batches(session.run(query)).to_pylist()
        client.close()
        assert "json_transform" in view["sql"]
        assert '"id"' in view["sql"]
        assert "amount" not in view["sql"]

    def test_misspelled_field_is_answered_with_the_right_one(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, 'select sum(amuont) from "sql-orders"')
        assert done.exit_code == 1
        assert '"amount"' in done.output

    def test_queries_of_a_session_see_each_their_fields(self, bootstrap: str) -> None:
        client = BrokerClient(ClientSettings((bootstrap,), "test", {}))
        options = SqlOptions(TopicFormats({}, {}))
        queries = ('select max(id) from "sql-orders"', 'select max(amount) from "sql-orders"')
        with SqlSession(client, options, lambda note: None) as session:
            found = [pa.Table.from_batches(session.run(each)).to_pylist() for each in queries]
        client.close()
        assert found == [[{"max(id)": RECORDS - 1}], [{"max(amount)": (RECORDS - 1) / 2}]]

    def test_offset_needs_no_quotes(self, bootstrap: str) -> None:
        query = 'select offset from "sql-items" order by offset limit 2 offset 3'
        assert rows(bootstrap, query) == [{"offset": 3}, {"offset": 4}]

    def test_topics_join(self, bootstrap: str) -> None:
        found = rows(
            bootstrap,
            'select i.value, count(*) n from "sql-orders" o join "sql-items" i on o.key = i.key '
            "group by all order by all limit 1",
        )
        assert found == [{"value": "item 0", "n": RECORDS // 10}]

    def test_topic_with_a_dot_is_a_table_of_a_schema(self, bootstrap: str) -> None:
        assert rows(bootstrap, 'select value from "sql-shop".a') == [{"value": "one"}]
        assert rows(bootstrap, 'select value from "sql-shop.a"') == [{"value": "one"}]

    def test_avro_fields_have_columns(self, bootstrap: str, tmp_path: Path) -> None:
        file = tmp_path / "reading.avsc"
        file.write_text(json.dumps(AVRO))
        arguments = ["-f", "avro", "--schema-file", str(file)]
        query = 'select sum(id) s, sum(value_offset) o, count(*) n, count(id) d from "sql-readings"'
        assert rows(bootstrap, query, *arguments) == [{"s": 45, "o": 5.0, "n": 11, "d": 10}]
        query = 'select id, "offset" from "sql-readings" where id = 3'
        assert rows(bootstrap, query, *arguments) == [{"id": 3, "offset": 3}]

    def test_protobuf_fields_have_columns(self, bootstrap: str, tmp_path: Path) -> None:
        file = tmp_path / "item.desc"
        file.write_bytes(protobuf_files()[0])
        arguments = ["-f", "sql-goods=protobuf", "--schema-file", str(file), "--message"]
        query = 'select name from "sql-goods" where id = 4'
        assert rows(bootstrap, query, *arguments, "shop.Item") == [{"name": "n4"}]

    def test_declared_columns_of_json(self, bootstrap: str) -> None:
        query = 'select amount, missing from "sql-orders" where id = 3'
        found = rows(bootstrap, query, "--schema", "id int, amount decimal(9,2), missing date")
        assert found == [{"amount": "1.50", "missing": None}]


class TestPushdown:
    def test_offset_and_partition_filters_limit_what_is_fetched(
        self, session: type[Opened]
    ) -> None:
        query = (
            'select "offset" from "sql-orders" where partition = 1 and "offset" between 20 and 24'
        )
        found, narrow = session.run(query)
        assert [each["offset"] for each in found] == [20, 21, 22, 23, 24]
        everything, wide = session.run(query, is_pushing=False)
        assert everything == found
        assert wide.stats.records == RECORDS
        assert narrow.stats.records == 5
        assert narrow.stats.bytes < wide.stats.bytes / 3

    def test_timestamp_filter_starts_later(self, session: type[Opened]) -> None:
        after = (BEGAN_MS + 800_000) * 1000
        query = f'select id from "sql-orders" where timestamp >= make_timestamptz({after})'
        found, narrow = session.run(query)
        expected = {n for n in range(RECORDS) if timestamp_of(n) * 1000 >= after}
        assert {each["id"] for each in found} == expected
        assert narrow.stats.records < RECORDS / 5

    def test_late_records_are_found_before_an_upper_bound(self, session: type[Opened]) -> None:
        before = (BEGAN_MS + 100_000) * 1000
        query = f'select id from "sql-orders" where timestamp < make_timestamptz({before})'
        expected = {n for n in range(RECORDS) if timestamp_of(n) * 1000 < before}
        assert max(expected) > 120  # a late one
        found, wide = session.run(query)
        assert {each["id"] for each in found} == expected
        assert wide.stats.records == RECORDS
        found, narrow = session.run(query, late_ms_max=30_000)
        assert {each["id"] for each in found} == expected
        assert narrow.stats.records < RECORDS / 3

    @pytest.mark.parametrize(
        "where",
        [
            '"offset" in (1, 250)',
            '"offset" < 10 or partition = 2',
            'partition != 0 and "offset" > 290 and key is not null',
            "key = 'k3' and \"offset\" >= 100",
            "timestamp between make_timestamptz({first_us}) and make_timestamptz({fiftieth_us})",
            "epoch_ms(timestamp) > {middle_ms}",
            'id > 800 and "offset" > 5',
            "\"where\".city = 'c1' and partition = 0",
            '"offset" = (select max("offset") from "sql-orders" where partition = 1)',
            "topic = 'other'",
            'headers is null and "offset" < 7',
            '"offset" > 299.5 or "offset" < 0.5',
        ],
    )
    def test_pushdown_keeps_every_row(self, session: type[Opened], where: str) -> None:
        where = where.format(  # here, because test ids do not depend on the time
            first_us=BEGAN_MS * 1000,
            fiftieth_us=(BEGAN_MS + 50_000) * 1000,
            middle_ms=BEGAN_MS + 500_000,
        )
        query = f'select id, partition, "offset" from "sql-orders" where {where} order by all'
        assert session.run(query)[0] == session.run(query, is_pushing=False)[0]

    def test_count_decodes_no_values(self, session: type[Opened]) -> None:
        found, _ = session.run('select count(*) n from "sql-orders"')
        assert found == [{"n": RECORDS}]

    def test_from_and_to_limit_the_scan(self, bootstrap: str) -> None:
        query = 'select count(*) n from "sql-items"'
        assert rows(bootstrap, query, "--from", "3", "--to", "5") == [{"n": 2}]
        assert rows(bootstrap, query, "--from", "-4") == [{"n": 4}]
        assert rows(bootstrap, query, "--from", "1h", "--to", "end") == [{"n": 10}]
        assert rows(bootstrap, query, "--to", "2020-01-01") == [{"n": 0}]


class TestTransactions:
    def test_aborted_records_are_left_out_unless_asked_for(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("sql-txn", 1, 1)])["sql-txn"].result(SECONDS_MAX)
        for name, commit in (("a", True), ("b", False)):
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"sql-{name}"})
            producer.init_transactions(SECONDS_MAX)
            producer.begin_transaction()
            producer.produce("sql-txn", name)
            producer.flush(SECONDS_MAX)
            (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS_MAX)
        query = 'select value from "sql-txn" order by "offset"'
        assert rows(bootstrap, query) == [{"value": "a"}]
        assert rows(bootstrap, query, "--uncommitted") == [{"value": "a"}, {"value": "b"}]


class TestOutput:
    QUERY = 'select id, "where" from "sql-orders" where id < 2 order by id'

    def test_table(self, bootstrap: str) -> None:
        lines = ottla_sql(bootstrap, self.QUERY).stdout.splitlines()
        assert lines == ["id  where", ' 0  {"city": "c0"}', ' 1  {"city": "c1"}']

    def test_csv(self, bootstrap: str) -> None:
        text = ottla_sql(bootstrap, self.QUERY, "-o", "csv").stdout
        assert list(csv.reader(io.StringIO(text))) == [
            ["id", "where"],
            ["0", '{"city": "c0"}'],
            ["1", '{"city": "c1"}'],
        ]

    def test_parquet(self, bootstrap: str, tmp_path: Path) -> None:
        file = tmp_path / "out.parquet"
        assert ottla_sql(bootstrap, self.QUERY, "--file", str(file)).exit_code == 0
        assert pyarrow.parquet.read_table(file).to_pylist() == [
            {"id": 0, "where": {"city": "c0"}},
            {"id": 1, "where": {"city": "c1"}},
        ]

    def test_result_without_rows_has_its_columns(self, bootstrap: str) -> None:
        query = 'select id from "sql-orders" where id < 0'
        assert ottla_sql(bootstrap, query, "-o", "csv").stdout == "id\n"

    def test_stats_say_what_was_fetched(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, 'select * from "sql-items" where "offset" = 3', "--stats")
        assert "1 of 10 records" in done.stderr


class TestFailures:
    def test_unknown_topic_is_named_with_a_suggestion(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, 'select * from "sql-order"')
        assert done.exit_code == 1
        assert done.stderr == "there is no topic 'sql-order'; did you mean 'sql-orders'?\n"

    def test_unknown_column_is_shown_with_its_position(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, 'select vlue from "sql-items"')
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-2:] == [
            'LINE 1: select vlue from "sql-items"',
            " " * 15 + "^^^^",
        ]

    def test_syntax_error_is_shown_with_its_position(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, "selec 1")
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "        ^^^^^")

    def test_bad_value_names_the_record(self, bootstrap: str) -> None:
        done = ottla_sql(bootstrap, 'select x from "sql-mixed"', "-f", "json")
        assert (done.exit_code, done.stderr) == (
            1,
            "sql-mixed-0 at offset 5: the value is not JSON\n",
        )

    def test_bad_value_is_null_if_asked_for(self, bootstrap: str) -> None:
        query = 'select count(x) x, count(*) n from "sql-mixed"'
        found = rows(bootstrap, query, "-f", "json", "--bad-values", "null")
        assert found == [{"x": 9, "n": 10}]

    def test_bad_avro_names_the_record(self, bootstrap: str, tmp_path: Path) -> None:
        file = tmp_path / "reading.avsc"
        file.write_text(json.dumps(AVRO))
        done = ottla_sql(
            bootstrap, 'select id from "sql-items"', "-f", "avro", "--schema-file", str(file)
        )
        assert done.exit_code == 1
        assert done.stderr.startswith(
            "sql-items-0 at offset 0: the value is not Avro of this schema"
        )

    def test_sampled_integer_is_not_rounded(self, bootstrap: str, spark_node: Cluster) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in ["1.5", *["1"] * 1200]:
            producer.produce("sql-fraction", f'{{"n": {number}}}')
        producer.flush(SECONDS_MAX)
        done = ottla_sql(bootstrap, 'select sum(n) from "sql-fraction"')
        assert done.exit_code == 1
        assert "sql-fraction-0 at offset 0: field n is 1.5" in done.stderr

    def test_two_statements_are_rejected(self, session: type[Opened]) -> None:
        with pytest.raises(SqlFailed, match="one statement"):
            session.run("select 1; select 2")

    def test_unreachable_broker_is_reported_with_its_address(self) -> None:
        began = time.monotonic()
        done = ottla_sql("127.0.0.1:1", "select * from orders", "-X", "default.api.timeout.ms=500")
        assert (done.exit_code, time.monotonic() - began < 10) == (1, True)
        assert "127.0.0.1:1" in done.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ["-o", "xml"],
            ["-f", "xml"],
            ["--from", "soon"],
            ["--late", "much"],
            ["--bad-values", "skip"],
            ["--follow", "-o", "parquet"],
            ["-f", "t=json", "-f", "t=raw"],
        ],
    )
    def test_wrong_options_are_usage_errors(self, arguments: list[str]) -> None:
        assert CliRunner().invoke(app, ["sql", "select 1", *arguments]).exit_code == 2

    def test_missing_extra_says_what_to_install(self, bootstrap: str) -> None:
        code = (
            "import sys; sys.modules['duckdb'] = None;"
            "from ottla.cli.main import main; sys.argv = ['ottla', 'sql', 'select 1']; main()"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "pip install 'ottla[sql]'" in done.stderr


class TestFollow:
    def follow(self, bootstrap: str, query: str, *more: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "ottla.cli.main", "sql", query, "--follow", "-o", "json"]
        command += ["--interval", "0.1", "-b", bootstrap, *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop(self, process: "subprocess.Popen[str]") -> None:
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 130, said
        assert "Traceback" not in said

    def produce(self, bootstrap: str, topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for each in values:
            producer.produce(topic, each)
        assert producer.flush(SECONDS_MAX) == 0

    def test_rows_of_new_records_are_printed_once(self, bootstrap: str) -> None:
        self.produce(bootstrap, "sql-tail", "a", "b")
        following = self.follow(bootstrap, "select value from \"sql-tail\" where value != 'b'")
        try:
            assert json.loads(following.stdout.readline()) == {"value": "a"}
            self.produce(bootstrap, "sql-tail", "b", "c")
            assert json.loads(following.stdout.readline()) == {"value": "c"}
            self.stop(following)
        finally:
            following.kill()
            following.communicate()

    def test_running_count_is_printed_when_it_changes(self, bootstrap: str) -> None:
        self.produce(bootstrap, "sql-run", "a", "b")
        following = self.follow(bootstrap, 'select count(*) n from "sql-run"')
        try:
            assert json.loads(following.stdout.readline()) == {"n": 2}
            self.produce(bootstrap, "sql-run", "c")
            assert json.loads(following.stdout.readline()) == {"n": 3}
            self.stop(following)
        finally:
            following.kill()
            following.communicate()
