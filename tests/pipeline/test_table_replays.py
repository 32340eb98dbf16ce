"""Table jobs whose checkpoint, declaration or writer changed: no row is lost, doubled or hidden.

Every key of a job that could move the place where "already written" is remembered is changed here
before a replay; `docs/tables.md` lists the answers.
"""

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from orders_table import Table, orders
from pyspark.errors import StreamingQueryException
from source_cluster import SourceCluster

from ottla.spark.runner import cause_of
from ottla.tables.job import BadJob
from ottla.tables.owner import NotOwner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: "SparkSession", cluster: SourceCluster) -> Table:
    return Table(spark, cluster)


@pytest.fixture
def filled(cluster: SourceCluster, table: Table) -> Table:
    """A table with the orders 0 to 9."""
    cluster.produce(table.topic, orders(range(10)))
    table.run()
    return table


def test_second_query_neither_overwrites_nor_writes_a_table(cluster, filled):
    other = cluster.create("other", 2)
    cluster.produce(other, [*orders(range(100, 110)), "no json"])
    second = {"topic": other, "checkpoint": str(cluster.tmp_path / "second")}
    with pytest.raises(NotOwner, match=r"is written by query .*a new checkpoint"):
        filled.run(**second)
    assert filled.ids == list(range(10))
    assert filled.letters == {}
    cluster.produce(filled.topic, orders(range(10, 15)))
    filled.run()
    assert filled.ids == list(range(15))


def test_lost_checkpoint_is_rejected_and_can_take_the_table_over(cluster, filled):
    shutil.rmtree(filled.checkpoint)
    cluster.produce(filled.topic, orders(range(10, 20)))
    with pytest.raises(NotOwner, match="--take-over"):
        filled.run()
    assert filled.ids == list(range(10))
    behind = json.dumps({filled.topic: {"0": 10, "1": 0}})
    filled.run(take_over=True, source={"startingOffsets": behind})
    assert filled.ids == list(range(20))
    filled.forget_last_commit()
    cluster.produce(filled.topic, orders(range(20, 25)))
    filled.run()
    assert filled.ids == list(range(25))


def test_old_copy_of_a_checkpoint_is_rejected(cluster, filled):
    copy = cluster.tmp_path / "copy"
    shutil.copytree(filled.checkpoint, copy)
    cluster.produce(filled.topic, orders(range(10, 20)))
    filled.run()
    shutil.rmtree(filled.checkpoint)
    copy.rename(filled.checkpoint)
    cluster.produce(filled.topic, orders(range(20, 30)))
    with pytest.raises(NotOwner, match="it is an old copy"):
        filled.run()
    assert filled.ids == list(range(20))


@pytest.mark.parametrize("is_replay", [False, True])
def test_table_of_an_earlier_version_goes_on(cluster, filled, is_replay):
    shutil.rmtree(filled.path / "_ottla")
    (filled.checkpoint / "ottla-table").unlink()
    if is_replay:
        filled.forget_last_commit()
    cluster.produce(filled.topic, orders(range(10, 15)))
    filled.run()
    assert filled.ids == list(range(15))
    with pytest.raises(NotOwner):
        filled.run(checkpoint=str(cluster.tmp_path / "second"))


def test_replay_with_changed_partition_values_leaves_no_row_behind(cluster, filled):
    filled.forget_last_commit()
    cluster.produce(filled.topic, orders(range(10, 12)))
    filled.run(columns={"half": "cast(5 as int)"})
    assert filled.ids == list(range(12))


def test_changed_declaration_that_a_replay_cannot_repeat_is_rejected(cluster, filled):
    filled.forget_last_commit()
    with pytest.raises(NotOwner, match=r"partitioned by \['half'\], not by \[\]"):
        filled.run(table={"path": str(filled.path)})
    checkpoint = str(filled.checkpoint)
    moved = {"path": str(cluster.tmp_path / "moved"), "partition_by": ["half"]}
    with pytest.raises(NotOwner, match="does not exist, and checkpoint"):
        filled.run(table=moved, checkpoint=checkpoint)
    record = filled.checkpoint / "ottla-table"
    kept = record.read_text()
    record.write_text(kept.replace('"parquet"', '"delta"'))
    with pytest.raises(NotOwner, match="as delta"):
        filled.run()
    record.write_text(kept.replace('"merges":false', '"merges":true'))
    with pytest.raises(NotOwner, match="begun in mode upsert or latest"):
        filled.run()
    record.write_text(kept)
    filled.run()
    assert filled.ids == list(range(10))


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}/", "{}/../table"])
def test_other_spelling_of_the_path_is_the_same_table(cluster, filled, spelling):
    filled.forget_last_commit()
    cluster.produce(filled.topic, orders(range(10, 12)))
    place = {"path": spelling.format(filled.path), "partition_by": ["half"]}
    filled.run(table=place, checkpoint=str(filled.checkpoint))
    assert filled.ids == list(range(12))


def test_table_that_was_moved_with_its_checkpoint_goes_on(cluster, filled):
    moved, checkpoint = cluster.tmp_path / "moved", cluster.tmp_path / "moved-checkpoint"
    filled.forget_last_commit()
    filled.path.rename(moved)
    shutil.move(filled.checkpoint, checkpoint)
    cluster.produce(filled.topic, orders(range(10, 12)))
    filled.path = moved
    place = {"path": str(moved), "partition_by": ["half"]}
    filled.run(table=place, checkpoint=str(checkpoint))
    assert filled.ids == list(range(12))


def test_new_dead_letters_of_a_replay_are_not_lost_silently(cluster, table):
    cluster.produce(table.topic, [*orders(range(5)), "no json", '{"id": 7}'])
    table.run()
    table.forget_last_commit()
    with pytest.raises(StreamingQueryException) as failed:
        table.run(required=["id", "amount"])
    assert "was committed with 1 rows, but its replay has 2" in cause_of(str(failed.value))
    table.run()
    assert table.letters.keys() == {"no json"}
    assert table.ids == [0, 1, 2, 3, 4, 7]


def test_other_dead_letter_topic_before_a_replay_doubles_no_letter(cluster, table):
    cluster.produce(table.topic, [*orders(range(5)), "no json"])
    table.run()
    table.forget_last_commit()
    table.run(dead_letters=cluster.create("other-dead"))
    assert table.letters.keys() == {"no json"}
    assert cluster.values(subscribe=cluster.name("other-dead")) == []


def test_rows_with_timestamps_can_be_read_after_small_files_were_merged(spark, cluster, table):
    raw = {"value": {"format": "raw"}, "columns": {}, "required": []}
    place = {"path": str(table.path), "compact_files": 2}
    for first in range(3):
        cluster.produce(table.topic, orders(range(first, first + 1)))
        table.run(table=place, **raw)
    assert list(table.path.glob("*/level1-*.parquet"))
    read = spark.read.parquet(str(table.path))
    assert dict(read.dtypes)["timestamp"] == "timestamp"
    assert sorted(row["offset"] for row in read.collect()) == [0, 1, 2]


def test_take_over_of_a_job_that_is_invalid_changes_no_claim(filled):
    claims = list((filled.path / "_ottla" / "queries").iterdir())
    with pytest.raises(BadJob, match="no column"):
        filled.run(
            take_over=True,
            checkpoint=str(filled.path.parent / "second"),
            table={"path": str(filled.path), "partition_by": ["nothing"]},
        )
    assert list((filled.path / "_ottla" / "queries").iterdir()) == claims
