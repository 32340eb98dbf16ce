"""Streams of a Spark without read limits (4.1), which does not pass the start of a micro-batch."""

import json

import pytest
from source_cluster import Crash, Engine, SourceCluster

from ottla.spark.stream_reader import Spark41StreamReader


class EngineWithoutLimits(Engine):
    """Spark 4.1: the end of a batch is requested first, without its start.

    After a restart the last end of the checkpoint is passed to ``partitions``, twice. An
    AvailableNow query requests its only end before that.
    """

    READER = Spark41StreamReader

    def restart(self, *, available_now: bool = False, **options: object) -> "EngineWithoutLimits":
        super().restart(**options)
        self._target = json.dumps(self.reader.latestOffset()) if available_now else None
        if self.offsets:
            last = json.loads(self.offsets[-1])
            assert self.reader.partitions(last, last) == []
        return self

    def trigger(self, limit: object = None) -> bool:
        if not self._recovered:
            self._recovered = True
            if self.offsets and len(self.offsets) - 1 not in self.commits:
                self._run(len(self.offsets) - 1)
                return True
        end = self._target or json.dumps(self.reader.latestOffset())
        self._step("latest")
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        self._step("logged")
        self._run(len(self.offsets) - 1)
        return True


def engine(cluster: SourceCluster, **options: object) -> EngineWithoutLimits:
    return EngineWithoutLimits(cluster.options(**options))


def test_stream_continues_at_its_position(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(5))
    stream = engine(cluster, subscribe=topic, startingOffsets="earliest")
    stream.run()
    cluster.produce(topic, range(5, 8))
    stream.run()
    stream.restart()
    cluster.produce(topic, range(8, 10))
    stream.run()
    assert stream.values == [str(each) for each in range(10)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("step", ["latest", "logged", "planned", "written", "committed"])
def test_driver_crash_at_any_step_neither_loses_nor_repeats_rows(
    cluster: SourceCluster, step: str, starting: str
) -> None:
    topic = cluster.create()
    stream = engine(cluster, subscribe=topic, startingOffsets=starting)
    stream.trigger()  # a batch without rows, which fixes the start
    for first in (0, 3, 6):
        cluster.produce(topic, range(first, first + 3))
        stream.crash_at = step
        with pytest.raises(Crash):
            stream.trigger()
        stream.restart()
        stream.run()
    assert stream.values == [str(each) for each in range(9)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_available_now_reads_what_is_new_since_its_last_run(
    cluster: SourceCluster, starting: str
) -> None:
    topic = cluster.create()
    stream = engine(cluster, subscribe=topic, startingOffsets=starting, maxOffsetsPerTrigger=2)
    stream.trigger()
    for first in (0, 4, 8):
        cluster.produce(topic, range(first, first + 4))
        stream.restart(available_now=True)
        stream.trigger()
        assert stream.values == [str(each) for each in range(first + 4)]


def test_limits_apply_after_a_restart(cluster: SourceCluster) -> None:
    topic = cluster.create()
    stream = engine(cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    stream.trigger()
    cluster.produce(topic, range(5))
    stream.restart()
    stream.run()
    assert stream.values == [str(each) for each in range(5)]
    assert [len(rows) for rows in stream.sink.values()] == [0, 2, 2, 1]
