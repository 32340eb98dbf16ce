"""A replayed micro-batch gives every task the same rows, even if options or topic have changed.

The sink here is a model of the exactly-once sink: it stores the last micro-batch of each task, and
skips a task that is already written.
"""

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from source_cluster import Crash, Engine, SourceCluster, plan_tasks

from ottla.spark.stream_offsets import from_json


class TaskEngine(Engine):
    """Spark's engine in front of a sink that commits task by task.

    ``crash_after`` is the number of tasks of a micro-batch that commit before the driver crashes;
    they are chosen at random, because tasks run in parallel.
    """

    def __init__(self, options: dict[str, str], random: Random) -> None:
        super().__init__(options)
        self.committed: dict[int, int] = {}
        self.written: list[dict[str, Any]] = []
        self.crash_after: int | None = None
        self.task_counts: dict[int, list[int]] = {}
        self._random = random

    def _run(self, batch: int) -> None:
        start, end = self._start_of(batch), json.loads(self.offsets[batch])
        tasks = list(enumerate(plan_tasks(self.reader, start, end)))
        self.task_counts.setdefault(batch, []).append(len(tasks))
        self._random.shuffle(tasks)
        for done, (number, task) in enumerate(tasks):
            if done == self.crash_after:
                self.crash_after = None
                raise Crash
            if self.committed.get(number, -1) < batch:
                self.written += task()
                self.committed[number] = batch
        self.commits.add(batch)

    @property
    def replays(self) -> int:
        return sum(len(counts) - 1 for counts in self.task_counts.values())


def engine_of(cluster: SourceCluster, random: Random, **options: object) -> TaskEngine:
    return TaskEngine(cluster.options(startingOffsets="earliest", **options), random)


def offsets_of(engine: TaskEngine) -> list[tuple[int, int]]:
    return sorted((each["partition"], each["offset"]) for each in engine.written)


@pytest.mark.parametrize(
    ("values", "later", "bytes_max"),
    [(["x" * 100] * 400, ["y"] * 8000, 12_000), (["x"] * 400, ["y" * 20_000] * 40, 1_000)],
    ids=["small records arrive", "large records arrive"],
)
def test_replay_keeps_its_tasks_when_the_topic_changes_its_density(
    cluster: SourceCluster, values: list[str], later: list[str], bytes_max: int
) -> None:
    topic = cluster.create()
    cluster.produce(topic, values)
    engine = engine_of(cluster, Random(1), subscribe=topic, maxBytesPerPartition=bytes_max)
    engine.crash_after = 1
    with pytest.raises(Crash):
        engine.trigger()
    cluster.produce(topic, later)
    engine.restart().run()
    assert engine.task_counts[0][0] == engine.task_counts[0][1]
    assert offsets_of(engine) == [(0, n) for n in range(len(values) + len(later))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"minPartitions": 4}, {"minPartitions": 1}),
        ({"minPartitions": 1}, {"minPartitions": 4}),
        ({"maxRecordsPerPartition": 10}, {"maxRecordsPerPartition": 35}),
        (
            {"maxBytesPerPartition": 1_000_000, "prefetchRecords": 0},
            {"maxBytesPerPartition": 100, "prefetchRecords": 1000},
        ),
        ({"maxOffsetsPerTrigger": 70, "minPartitions": 7}, {"maxOffsetsPerTrigger": 1}),
    ],
)
def test_replay_keeps_its_tasks_when_an_option_is_changed_before_a_restart(
    cluster: SourceCluster, before: dict[str, int], after: dict[str, int]
) -> None:
    topic = cluster.create(partitions=2)
    for number in range(2):
        cluster.produce(topic, range(50), number)
    engine = engine_of(cluster, Random(2), subscribe=topic, **before)
    engine.crash_after = 1
    with pytest.raises(Crash):
        engine.trigger()
    engine.restart(**after).run()
    assert engine.task_counts[0][0] == engine.task_counts[0][1]
    assert offsets_of(engine) == [(part, n) for part in range(2) for n in range(50)]


def test_tasks_after_an_expired_one_keep_their_numbers(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    for number in range(2):
        cluster.produce(topic, range(40), number)
    engine = engine_of(cluster, Random(3), subscribe=topic, minPartitions=4, failOnDataLoss="false")
    engine.crash_after = 0
    with pytest.raises(Crash):
        engine.trigger()
    engine.committed[3] = 0  # the last of the four: the second half of partition 1
    cluster.delete_records(topic, 30)
    engine.restart().run()
    assert engine.task_counts[0] == [4, 4]
    assert offsets_of(engine) == [(0, n) for n in range(30, 40)] + [(1, n) for n in range(20)]


def test_checkpoint_without_pieces_is_replayed_by_the_options(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(40))
    engine = engine_of(cluster, Random(4), subscribe=topic, minPartitions=4)
    engine.crash_after = 0
    with pytest.raises(Crash):
        engine.trigger()
    kept = json.loads(engine.offsets[0])
    del kept["topics"][topic]["pieces"]
    assert from_json(kept).pieces is None
    engine.offsets[0] = json.dumps(kept)
    engine.restart().run()
    assert engine.task_counts[0] == [4, 4]
    assert offsets_of(engine) == [(0, n) for n in range(40)]


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_before_and_after_a_crash_writes_every_row_once(
    cluster: SourceCluster, seed: int
) -> None:
    random = Random(seed)
    topic = cluster.create(partitions=2)
    sent = [0, 0]
    engine = engine_of(cluster, random, subscribe=topic)
    for _ in range(12):
        for number in range(2):
            count = random.choice([0, 1, 7, 60])
            value = "v" * random.choice([1, 50, 3000])
            cluster.produce(topic, [value] * count, number)
            sent[number] += count
        options = {
            "maxBytesPerPartition": random.choice([50, 500, 5_000, 1_000_000]),
            "minPartitions": random.randrange(1, 9),
            "maxRecordsPerPartition": random.choice([1, 9, 1000]),
            "maxOffsetsPerTrigger": random.choice([3, 40, 1000]),
        }
        engine.crash_after = random.choice([None, 0, 1, 2, 5])
        with suppress(Crash):
            engine.trigger()
        engine.restart(**options)
    engine.crash_after = None
    engine.run()
    assert engine.replays > 0
    assert offsets_of(engine) == [(part, n) for part in range(2) for n in range(sent[part])]
