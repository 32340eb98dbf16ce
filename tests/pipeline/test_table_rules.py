"""The rules of tables that need no Spark session: jars, merges, schema changes, maintenance."""

import pytest
from pyspark.sql.types import StructType

from ottla.formats.sql_names import spark_table
from ottla.tables.job import MaintenanceSpec, TableFormat
from ottla.tables.lakehouse import NoRuntime, settings_for
from ottla.tables.maintenance import is_due, statements
from ottla.tables.schema_change import (
    ColumnType,
    Misfit,
    SchemaChange,
    aligned_names,
    alterations,
    compare,
)
from ottla.tables.targets import merge_statement

HOUR = 3_600_000


def columns(**types: str) -> StructType:
    kinds = {"bigint": "long", "int": "integer"}
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}}
                for name, kind in types.items()
            ],
        }
    )


# -- jars ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "spark", "coordinates"),
    [
        ("delta", "4.1.4", "io.delta:delta-spark_4.1_2.13:4.4.0"),
        ("delta", "4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("iceberg", "4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
    ],
)
def test_packages_fit_the_version_of_spark(format, spark, coordinates):
    assert settings_for([format], spark, {})["spark.jars.packages"] == coordinates


def test_parquet_needs_no_settings():
    assert settings_for(["parquet"], "4.3.0", {"spark.x": "1"}) == {"spark.x": "1"}


def test_both_formats_share_a_session_and_given_packages_stay():
    found = settings_for(
        ["delta", "iceberg"], "4.1.4", {"spark.jars.packages": "a:b:1"}, {"lake": "/lake"}
    )
    packages = found["spark.jars.packages"].split(",")
    assert packages[0] == "a:b:1"
    assert len(packages) == 3
    assert found["spark.sql.extensions"].count(",") == 1
    assert found["spark.sql.catalog.lake.warehouse"] == "/lake"


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages"])
def test_a_given_runtime_is_not_replaced(key):
    given = "io.delta:delta-spark_4.3_2.13:9.9.9"
    found = settings_for(["delta"], "4.3.0", {key: given})
    assert found[key] == given
    assert "DeltaSparkSessionExtension" in found["spark.sql.extensions"]


def test_a_given_catalog_is_not_replaced():
    rest = {"spark.sql.catalog.lake.type": "rest"}
    assert settings_for(["iceberg"], "4.1.0", rest, {"lake": "/x"}).items() >= rest.items()


@pytest.mark.parametrize(("format", "spark"), [("delta", "4.3.0"), ("iceberg", "4.2.1")])
def test_a_spark_without_a_runtime_is_rejected_with_the_extra_to_install(format, spark):
    with pytest.raises(NoRuntime, match=rf"this is Spark {spark}.*pip install 'ottla\[{format}\]'"):
        settings_for([format], spark, {})


# -- merges ----------------------------------------------------------------------


def test_merge_deletes_replaces_and_inserts_by_key():
    text = merge_statement("t1", "s1", ["id"], ["id", "a b"], ["id", "A B", "old"])
    assert text.splitlines() == [
        "MERGE INTO t1 t",
        "USING s1 s",
        "ON t.`id` = s.`id`",
        "WHEN MATCHED AND s.`ottla_change` = 'delete' THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET t.`a b` = s.`a b`",
        "WHEN NOT MATCHED AND NOT s.`ottla_change` = 'delete' "
        "THEN INSERT (`id`, `a b`) VALUES (s.`id`, s.`a b`)",
    ]


def test_merge_of_keys_alone_has_nothing_to_replace():
    assert "UPDATE" not in merge_statement("t", "s", ["a", "b"], ["a", "b"], ["a", "b"])


def test_names_are_quoted():
    assert spark_table("lake.my shop.orders") == "`lake`.`my shop`.`orders`"
    text = merge_statement("t", "s", ["x`y"], ["x`y"], ["x`y"])
    assert "t.`x``y` = s.`x``y`" in text


# -- schema changes ----------------------------------------------------------------


def test_new_columns_are_added_and_missing_ones_are_null():
    table, rows = columns(id="bigint", old="string"), columns(ID="bigint", note="string")
    change = compare(table, rows, TableFormat.DELTA)
    assert change == SchemaChange(add=(ColumnType(("note",), "string"),))
    assert alterations("t", change) == ["ALTER TABLE t ADD COLUMNS (`note` string)"]
    assert aligned_names(table, rows.names) == [("id", "ID"), ("old", None)]


def test_narrower_types_are_converted():
    change = compare(
        columns(a="bigint", b="double", c="decimal(10,2)"),
        columns(a="int", b="float", c="decimal(8,2)"),
        TableFormat.PARQUET,
    )
    assert change == SchemaChange()


def test_wider_types_widen_columns_of_iceberg_only():
    table, rows = columns(a="int"), columns(a="bigint")
    widened = compare(table, rows, TableFormat.ICEBERG)
    assert alterations("t", widened) == ["ALTER TABLE t ALTER COLUMN `a` TYPE bigint"]
    for format in (TableFormat.DELTA, TableFormat.PARQUET):
        assert compare(table, rows, format).misfits == (
            Misfit("a", "bigint", "int", ("a",), "int"),
        )


@pytest.mark.parametrize(
    ("table", "rows"),
    [("double", "string"), ("bigint", "double"), ("decimal(10,2)", "decimal(12,4)")],
)
def test_other_types_are_misfits(table, rows):
    change = compare(columns(a=table), columns(a=rows), TableFormat.ICEBERG)
    assert change.misfits == (Misfit("a", rows, table, ("a",), table),)
    assert str(change.misfits[0]) == f"column a is {rows} in the job and {table} in the table"


def test_fields_of_structs_are_added_too():
    table = StructType().add("s", columns(x="int"))
    rows = StructType().add("s", columns(x="int", y="string"))
    assert alterations("t", compare(table, rows, TableFormat.DELTA)) == [
        "ALTER TABLE t ADD COLUMNS (`s`.`y` string)"
    ]


# -- maintenance ---------------------------------------------------------------------


def test_maintenance_is_due_at_first_and_after_its_interval():
    spec = MaintenanceSpec(every="1 hour")
    assert is_due(spec, None, 0)
    assert not is_due(spec, 0, HOUR - 1)
    assert is_due(spec, 0, HOUR)
    assert not is_due(None, None, 0)


def test_maintenance_of_delta_optimizes_and_vacuums():
    spec = MaintenanceSpec(vacuum="90 minutes")
    assert statements(spec, TableFormat.DELTA, "delta.`/t`", 8, 0) == [
        "OPTIMIZE delta.`/t`",
        "VACUUM delta.`/t` RETAIN 2 HOURS",
    ]


def test_maintenance_of_iceberg_rewrites_expires_and_removes_orphans():
    spec = MaintenanceSpec(expire="1 hour", vacuum="1 hour")
    rewrite, expire, orphans = statements(
        spec, TableFormat.ICEBERG, "lake.shop.o'x", 8, 48 * HOUR + 7
    )
    assert rewrite == (
        "CALL `lake`.system.rewrite_data_files(table => '`shop`.`o\\'x`', "
        "options => map('min-input-files', '8'))"
    )
    assert "older_than => TIMESTAMP '1970-01-02T23:00:00.007Z', retain_last => 1" in expire
    assert "older_than => TIMESTAMP '1970-01-02T00:00:00.007Z'" in orphans  # a day at least


def test_maintenance_runs_only_what_is_declared():
    spec = MaintenanceSpec(compact=False, expire=None, vacuum=None)
    for format in TableFormat:
        assert statements(spec, format, "a.b.c", 8, 0) == []
