"""Topics in Spark's catalog: CREATE TABLE ... USING ottla, and views of all topics."""

import json
from typing import TYPE_CHECKING

import pytest
from source_cluster import SourceCluster
from source_table import Table
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.spark.catalog_tables import (
    METADATA,
    declared_options,
    options_of,
    sink_options_of,
    with_options,
)
from ottla.spark.columns import full_schema
from ottla.spark.option_values import OptionError
from ottla.spark.views import VIEWS_MAX, BadViews, register_views, statements, view_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

GIVEN = {"kafka.bootstrap.servers": "host:1", "subscribe": "orders"}


def as_spark_passes(options: dict[str, str]) -> dict[str, str]:
    lowered = {key.lower(): value for key, value in options.items()}
    return lowered | {f"option.{key}": value for key, value in lowered.items()} | {"owner": "me"}


def test_options_of_a_new_table_are_found_under_their_prefix():
    given = {**GIVEN, "startingOffsets": "earliest"}
    assert declared_options(as_spark_passes(given)) == given
    assert declared_options(GIVEN) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka.sasl.jaas.config", "is a secret"),
        ("kafka.ssl.key.password", "is a secret"),
        ("schema.registry.basic.auth.user.info", "is a secret"),
        ("schema.registry.bearer.auth.token", "is a secret"),
        ("rsm.config.s3.secret.access.key", "is a secret"),
        ("startingOffset", "did you mean 'startingOffsets'"),
        ("endingOffsets", "endingOffsets"),  # not for streams
    ],
)
def test_table_with_a_secret_or_invalid_option_is_not_created(name, message):
    with pytest.raises(OptionError, match=message) as caught:
        declared_options(as_spark_passes({**GIVEN, name: "giraffe"}))
    if "secret" in message:
        assert "giraffe" not in str(caught.value)


def test_reader_takes_the_options_from_any_column_and_a_query_replaces_them():
    schema = with_options(full_schema(False), {**GIVEN, "startingOffsets": "earliest"})
    assert schema.names == full_schema(False).names
    assert all(json.loads(each.metadata[METADATA])["subscribe"] == "orders" for each in schema)
    found = options_of({"startingoffsets": "latest"}, schema)
    assert found == {**GIVEN, "startingoffsets": "latest"}


def test_table_with_declared_columns_is_explained():
    with pytest.raises(OptionError, match="without a list of columns"):
        options_of({}, full_schema(False))


def test_insert_goes_to_the_only_topic_of_a_table():
    stored = {**GIVEN, "startingOffsets": "earliest", "kafka.acks": "all"}
    schema = with_options(full_schema(False), stored)
    assert sink_options_of({}, schema) == {
        "kafka.bootstrap.servers": "host:1",
        "kafka.acks": "all",
        "topic": "orders",
    }
    plain = {"kafka.bootstrap.servers": "other:1"}
    assert sink_options_of(plain, schema) == plain, "a write with its own connection"
    several = with_options(full_schema(False), {**GIVEN, "subscribe": "a,b"})
    with pytest.raises(OptionError, match="one topic"):
        sink_options_of({}, several)


def test_views_have_valid_names_and_never_hide_each_other():
    assert view_names(["a.b", "c-d"], "kafka_") == {"kafka_a_b": "a.b", "kafka_c_d": "c-d"}
    with pytest.raises(BadViews, match=r"topics a\.b and a-b would both be the view a_b"):
        view_names(["a.b", "a-b"])
    with pytest.raises(BadViews, match="at most"):
        view_names([str(each) for each in range(VIEWS_MAX + 1)])


def test_statements_quote_names_and_values():
    (line,) = statements({"it_s": "it's"}, {"kafka.bootstrap.servers": "a:1"})
    assert line == (
        "CREATE TABLE IF NOT EXISTS `it_s` USING ottla OPTIONS ("
        "'kafka.bootstrap.servers' 'a:1', 'subscribe' 'it\\'s');"
    )


def test_command_prints_a_statement_for_each_topic(cluster):
    topic, other = cluster.create("a.b"), cluster.create("other")
    at = ["--bootstrap", cluster.node.bootstrap]
    pattern = ["--pattern", f"{cluster.prefix}.*", "--prefix", "v_"]
    words = ["pipeline", "catalog", *at, *pattern, "--option", "includeHeaders=true"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert f"'includeHeaders' 'true', 'subscribe' '{topic}');" in lines[0]
    assert lines[1].startswith(f"CREATE TABLE IF NOT EXISTS `v_{other.replace('-', '_')}` USING")
    done = CliRunner().invoke(app, ["pipeline", "catalog", *at, "--pattern", "("])
    assert done.exit_code == 1
    assert "not a regular expression" in done.stderr


# -- in Spark ----------------------------------------------------------------------


@pytest.fixture
def created(spark: "SparkSession", cluster: SourceCluster) -> "Iterator[str]":
    """A topic with five records, and the table ``orders`` over it."""
    topic = cluster.create()
    cluster.produce(topic, range(5))
    (line,) = statements({"orders": topic}, {"kafka.bootstrap.servers": cluster.node.bootstrap})
    spark.sql(line.rstrip(";"))
    yield topic
    spark.sql("DROP TABLE orders")


def test_created_table_is_queried_streamed_and_written(spark, cluster, created, tmp_path):
    query = "select cast(value as string) v from orders"
    assert sorted(row["v"] for row in spark.sql(query).collect()) == ["0", "1", "2", "3", "4"]
    later = f"{query} with (startingOffsets = '{json.dumps({created: {'0': 3}})}')"
    assert sorted(row["v"] for row in spark.sql(later).collect()) == ["3", "4"]
    spark.sql("insert into orders (key, value) values (cast('k' as binary), cast('5' as binary))")
    (row,) = cluster.rows(subscribe=created, startingOffsets=json.dumps({created: {"0": 5}}))
    assert (row["key"], row["value"], row["partition"]) == (b"k", b"5", 0)

    rows = spark.readStream.option("startingOffsets", "earliest").table("orders")
    table = Table(spark, tmp_path)
    writer = rows.selectExpr("cast(value as string) value", "partition", "offset").writeStream
    writer = writer.option("checkpointLocation", str(table.checkpoint)).format("parquet")
    stream = writer.trigger(availableNow=True).start(str(table.rows))
    assert stream.awaitTermination(120)
    assert table.values == ["0", "1", "2", "3", "4", "5"]


def test_topics_of_a_cluster_become_views(spark, cluster):
    topic, other = cluster.create("a.b"), cluster.create("other")
    cluster.produce(topic, ["x"])
    pattern = f"{cluster.prefix}.*"
    views = register_views(spark, cluster.node.bootstrap, pattern=pattern, prefix="v_")
    assert set(views.values()) == {topic, other}
    (view,) = (name for name, each in views.items() if each == topic)
    assert spark.sql(f"select cast(value as string) from {view}").collect()[0][0] == "x"
