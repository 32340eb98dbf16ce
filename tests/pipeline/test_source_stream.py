"""Streams read every row once, through restarts, replays, limits and changed topics."""

import json
import logging
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from source_cluster import Crash, Engine, SourceCluster, wait_until

from ottla.protocol.types import TopicPartition
from ottla.spark.data_loss import DataLoss
from ottla.spark.option_values import OptionError
from ottla.spark.progress import GroupOffsets, ends_of
from ottla.spark.stream_offsets import from_json

STEPS = ["initial", "latest", "logged", "planned", "read", "written", "committed"]


def numbers(engine: Engine) -> list[int]:
    return [int(each) for each in engine.values]


def sizes(engine: Engine) -> list[int]:
    return [len(rows) for _, rows in sorted(engine.sink.items())]


def test_stream_continues_at_its_position(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(5), 0)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest").run()
    assert numbers(engine) == [0, 1, 2, 3, 4]
    assert not engine.trigger()
    cluster.produce(topic, range(5, 8), 0)
    cluster.produce(topic, range(8, 9), 1)
    assert numbers(engine.run()) == list(range(9))
    cluster.produce(topic, range(9, 11), 1)
    assert numbers(engine.restart().run()) == list(range(11))
    assert sizes(engine) == [5, 4, 2]


def test_latest_applies_only_to_the_start_of_a_new_query(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["before"])
    engine = cluster.engine(subscribe=topic)
    assert engine.trigger()  # empty: it fixes the beginning in the checkpoint
    cluster.produce(topic, ["one"])
    engine.restart().run()
    assert engine.values == ["one"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_driver_crash_at_any_step_neither_loses_nor_repeats_rows(
    cluster: SourceCluster, step: str, start: str
) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, ["x"], 0)
    engine = cluster.engine(subscribe=topic, startingOffsets=start, maxOffsetsPerTrigger=3)
    if start == "latest":
        assert engine.trigger()
    for batch in range(3):
        cluster.produce(topic, [f"{batch}a", f"{batch}b"], 0)
        cluster.produce(topic, [f"{batch}c", f"{batch}d"], 1)
        engine.crash_at = step
        with pytest.raises(Crash):
            engine.run()
        engine.restart()
    engine.run()
    expected = [
        f"{batch}{letter}" for letters in ("ab", "cd") for batch in range(3) for letter in letters
    ]
    assert engine.values == (["x"] if start == "earliest" else []) + expected
    assert max(sizes(engine)) <= 3


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_neither_lose_nor_repeat_rows(cluster: SourceCluster, seed: int) -> None:
    """Produce, trigger, crash, restart, add partitions, in any order and with any limit."""
    random = Random(seed)
    topic = cluster.create(partitions=1)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    sent: list[str] = []
    partitions = 1
    for step in range(40):
        match random.randrange(6):
            case 0 | 1:
                values = [f"{step:02}-{each}" for each in range(random.randrange(1, 6))]
                cluster.produce(topic, values, random.randrange(partitions))
                sent += values
            case 2 | 3:
                engine.trigger()
            case 4:
                engine.crash_at = random.choice(STEPS)
                with suppress(Crash):
                    engine.trigger()
                engine.crash_at = None
                engine.restart(
                    available_now=random.random() < 0.3,
                    maxOffsetsPerTrigger=random.randrange(1, 9),
                    minPartitions=random.randrange(1, 4),
                )
            case 5 if random.random() < 0.3:
                partitions += 1
                cluster.grow(topic, partitions)
    engine.restart().run()
    assert sorted(engine.values) == sorted(sent)


def test_first_batch_is_replayed_from_its_stored_start(cluster: SourceCluster) -> None:
    """Spark requests the initial offset again, when the latest offset is higher."""
    topic = cluster.create()
    cluster.produce(topic, ["old"])
    engine = cluster.engine(subscribe=topic)
    engine.crash_at = "latest"
    with pytest.raises(Crash):
        engine.trigger()
    cluster.produce(topic, ["one"])
    engine.crash_at = "read"
    with pytest.raises(Crash):
        engine.trigger()
    cluster.produce(topic, ["two"])
    engine.restart().run()
    assert engine.values == ["one", "two"]


def test_batch_with_data_of_another_source_reads_nothing_twice(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(3))
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest").run()
    end = json.loads(engine.offsets[-1])
    assert engine.reader.partitions(end, end) == []


# -- limits ------------------------------------------------------------------------


def test_max_offsets_per_trigger_limits_rows(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(30), 0)
    cluster.produce(topic, range(30, 40), 1)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=16)
    assert engine.reader.getDefaultReadLimit() == ReadMaxRows(16)
    assert numbers(engine.run()) == list(range(40))
    assert sizes(engine) == [16, 16, 8]
    once = cluster.engine(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=16)
    once.trigger(ReadAllAvailable())
    assert sizes(once) == [40]


def test_max_bytes_per_trigger_limits_bytes(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    for _ in range(20):  # batches of one record, so that all offsets have equal sizes
        cluster.produce(topic, ["x" * 1000], 0)
    cluster.produce(topic, ["y" * 1000], 1)
    asked = {"subscribe": topic, "startingOffsets": "earliest", "maxBytesPerTrigger": 5500}
    engine = cluster.engine(**asked)
    assert engine.reader.getDefaultReadLimit() == ReadMaxBytes(5500)
    assert len(engine.run().values) == 21
    assert sizes(engine)[0] in (4, 5, 6) and max(sizes(engine)) <= 6
    both = cluster.engine(**asked, maxOffsetsPerTrigger=2).run()
    assert len(both.values) == 21 and max(sizes(both)) == 2


def test_batch_waits_for_min_rows_up_to_max_delay(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(2))
    asked = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    engine = cluster.engine(**asked)
    assert engine.reader.getDefaultReadLimit() == ReadMinRows(5)
    assert engine.trigger()  # as in Spark, the first batch does not wait
    cluster.produce(topic, range(2, 6))
    assert not engine.trigger()
    cluster.produce(topic, range(6, 7))
    assert engine.trigger()
    cluster.produce(topic, range(7, 8))
    assert not engine.trigger()
    engine.restart(maxTriggerDelay="1ms")
    assert engine.run() and numbers(engine) == list(range(8))
    cluster.produce(topic, range(8, 9))
    engine.restart(available_now=True, maxTriggerDelay="1h").run()
    assert numbers(engine) == list(range(9))


def test_available_now_ends_at_the_end_offsets_of_its_start(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(5), 0)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    engine.restart(available_now=True)
    cluster.produce(topic, range(5, 9), 0)
    cluster.grow(topic, 3)
    cluster.produce(topic, range(9, 11), 2)
    assert numbers(engine.run()) == [0, 1, 2, 3, 4]
    assert numbers(engine.restart(available_now=True).run()) == list(range(11))


def test_available_now_from_latest_reads_nothing(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["a"])
    engine = cluster.engine(subscribe=topic).restart(available_now=True)
    cluster.produce(topic, ["b"])
    assert engine.run().values == []
    assert engine.restart(available_now=True).run().values == ["b"]


def test_progress_reports_latest_offsets(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(9))
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert engine.reader.reportLatestOffset() is None
    engine.trigger()
    latest: Any = engine.reader.reportLatestOffset()
    assert list(from_json(latest).ends.values()) == [9]
    assert list(from_json(json.loads(engine.offsets[0])).ends.values()) == [4]


# -- what changes while a stream runs ------------------------------------------------


def test_new_partitions_and_topics_are_read_from_their_start(
    cluster: SourceCluster,
) -> None:
    one = cluster.create("p1")
    cluster.produce(one, ["a"])
    engine = cluster.engine(subscribePattern=cluster.name("p.*")).run()
    assert engine.values == []
    cluster.grow(one, 2)
    cluster.produce(one, ["b"], 1)
    two = cluster.create("p2")
    cluster.produce(two, ["c"])
    assert engine.run().values == ["b", "c"]
    cluster.produce(two, ["d"])
    assert engine.restart().run().values == ["b", "c", "d"]


def test_topic_added_to_subscribe_is_read_from_its_start(cluster: SourceCluster) -> None:
    one, two = cluster.create("one"), cluster.create("two")
    cluster.produce(one, ["a"])
    cluster.produce(two, ["b"])
    engine = cluster.engine(subscribe=one, startingOffsets="earliest").run()
    engine.restart(subscribe=f"{one},{two}").run()
    assert engine.values == ["a", "b"]


def test_unread_expired_records_are_an_error_or_skipped(
    cluster: SourceCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(4))
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest").run()
    cluster.produce(topic, range(4, 9))
    cluster.delete_records(topic, 7)
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 4 to 6: the log starts at 7 .*false"):
        engine.trigger()
    with caplog.at_level(logging.WARNING):
        engine.restart(failOnDataLoss="false").run()
    assert f"skipped lost records: {topic}-0: offsets 4 to 6" in caplog.text
    assert numbers(engine) == [0, 1, 2, 3, 7, 8]


def test_records_expired_before_replay_are_an_error_or_skipped(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(5))
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    engine.crash_at = "logged"
    with pytest.raises(Crash):
        engine.trigger()
    cluster.delete_records(topic, 2)
    engine.restart()
    # The driver reports it before any task does.
    with pytest.raises(
        DataLoss, match=rf"{topic}-0: offsets 0 to 1: the log starts at 2 \(records"
    ):
        engine.trigger()
    assert numbers(engine.restart(failOnDataLoss="false").run()) == [2, 3, 4]


def test_recreated_topic_is_reported_as_a_loss(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["a", "b"])
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest").run()
    cluster.delete(topic)
    cluster.create()
    cluster.produce(topic, ["c", "d", "e"])
    message = rf"{topic}-0: everything from offset 2 on: topic .* deleted and recreated"
    with pytest.raises(DataLoss, match=message):
        engine.trigger()
    engine.restart(failOnDataLoss="false").run()
    assert [row["value"] for row in engine.sink[1]] == [b"c", b"d", b"e"]
    cluster.produce(topic, ["f"])
    engine.restart(failOnDataLoss="true").run()
    assert [row["value"] for row in engine.sink[2]] == [b"f"]


def test_deleted_topic_is_an_error_or_left_out(cluster: SourceCluster) -> None:
    one, two = cluster.create("one"), cluster.create("two")
    cluster.produce(one, ["a"])
    cluster.produce(two, ["b"])
    engine = cluster.engine(subscribe=f"{one},{two}", startingOffsets="earliest").run()
    cluster.delete(two)
    with pytest.raises(DataLoss, match=rf"{two}-0: everything from offset 1 on: it was deleted"):
        engine.trigger()
    with pytest.raises(DataLoss, match=rf"{two}-0: everything from offset 1 on"):
        engine.restart(available_now=True).trigger()
    engine.restart(available_now=True, failOnDataLoss="false")
    cluster.produce(one, ["c"])
    assert engine.run().values == ["a", "b"]
    assert engine.restart().run().values == ["a", "c", "b"]
    assert list(from_json(json.loads(engine.offsets[-1])).ids) == [one]


def test_start_outside_the_log_is_an_error_or_clamped(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(5))
    cluster.delete_records(topic, 2)
    for offset, message in (
        (9, "offsets 5 to 8: the log ends at 5"),
        (0, "offsets 0 to 1: the log"),
    ):
        start = {"startingOffsets": f'{{"{topic}": {{"0": {offset}}}}}'}
        with pytest.raises(DataLoss, match=message):
            cluster.engine(subscribe=topic, **start).trigger()
        lax = cluster.engine(subscribe=topic, failOnDataLoss="false", **start).run()
        assert numbers(lax) == ([2, 3, 4] if offset == 0 else [])
    with pytest.raises(OptionError, match="no such topic or partition: not-there"):
        cluster.engine(subscribe="not-there").trigger()


def test_query_of_sparks_kafka_source_continues_with_its_checkpoint(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(5), 0)
    cluster.produce(topic, range(5, 8), 1)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    kept = [{topic: {"0": 2, "1": 0}}, {topic: {"0": 4, "1": 1}}]
    engine.offsets = [json.dumps(each) for each in kept]
    engine.commits = {0}
    assert numbers(engine.run()) == [2, 3, 4, 5, 6, 7]
    assert sizes(engine)[0] == 3  # the batch that was not finished, as it was planned


# -- the lag ---------------------------------------------------------------------------


def test_group_id_commits_the_position_of_the_stream(cluster: SourceCluster) -> None:
    topic, group = cluster.create(), cluster.name("group")
    cluster.produce(topic, range(4))
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", groupId=group).run()
    assert cluster.committed(group, topic) == 4
    assert json.loads(engine.offsets[0])["group"] == group


def test_failed_group_commit_does_not_stop_the_stream(
    cluster: SourceCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = cluster.create(), cluster.name("group")
    cluster.produce(topic, range(2))
    member = Consumer({"bootstrap.servers": cluster.node.bootstrap, "group.id": group})
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.05) or member.assignment(), "joining the group")
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", groupId=group)
    assert numbers(engine.run()) == [0, 1]
    assert f"group {group}: cannot commit offsets" in caplog.text
    member.close()


def test_listener_commits_only_offsets_of_its_group() -> None:
    kept = {"version": 1, "group": "g", "topics": {"a": {"id": "x", "end": {"0": 5}}}}
    assert ends_of(json.dumps(kept), "g") == {TopicPartition("a", 0): 5}
    assert ends_of(kept, "g") == {TopicPartition("a", 0): 5}
    for other in (json.dumps(kept | {"group": "h"}), "7", "not json", None, '{"a": {"0": 1}}'):
        assert ends_of(other, "g") == {}
    assert ends_of(kept | {"version": 9}, "g") == {}
    with pytest.raises(OptionError, match="'groupId' is missing"):
        GroupOffsets({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
