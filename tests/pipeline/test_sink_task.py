"""A task of a sink without Spark: a crash at any step and a replay write every row once."""

import time

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.patience import SECONDS_MAX

from ottla.client.blocking.raw_producer import Fenced, RawProducer
from ottla.client.cluster import Refused
from ottla.spark import sink_task
from ottla.spark.markers import Marker, Markers, marker_key, marker_record
from ottla.spark.option_values import OptionError
from ottla.spark.options import SinkOptions
from ottla.spark.sink_task import (
    MarkersMissing,
    Outdated,
    RowsDiffer,
    SinkTask,
    Task,
    TooLarge,
    forget,
    prepare,
    write_gathered,
)
from ottla.testing import run_node


class Crash(BaseException):
    """The worker crashes: nothing after this point happens."""


@pytest.fixture(scope="module")
def node():
    with run_node() as running:
        yield running


@pytest.fixture
def topic(node, request):
    name = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(SECONDS_MAX)
    return name


@pytest.fixture
def options(node, topic):
    def made(**args):
        chosen = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic, **args}
        found = SinkOptions.parse(chosen)
        prepare(found)
        return found

    return made


def rows(*values):
    return [pa.record_batch([pa.array([value.encode()])], names=["value"]) for value in values]


def committed(node, topic):
    """Return the sorted values that read_committed consumers receive."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([Assigned(topic, number, 0) for number in range(2)])
    found, ends = [], 0
    while ends < 2:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ends += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def test_at_least_once_writes_all_rows(node, topic, options):
    SinkTask(options(), Task("q", 0, 0)).write(rows("a", "b", "c"))
    assert committed(node, topic) == ["a", "b", "c"]


def test_timestamps_are_kept_if_asked_for(node, topic, options):
    stamps = [1_700_000_000_123, 1_700_000_000_123, 1_600_000_000_000, None, 5]
    batch = pa.record_batch(
        [
            pa.array([str(each).encode() for each in range(5)]),
            pa.array([0] * 5, pa.int32()),
            pa.array([None if each is None else each * 1000 for each in stamps], pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
        ],
        names=["value", "partition", "timestamp"],
    )
    before = int(time.time() * 1000)
    SinkTask(options(keepTimestamps="true"), Task("q", 0, 0)).write([batch])
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "stamps"})
    consumer.assign([Assigned(topic, 0, 0)])
    found = {}
    while len(found) < 5:
        message = consumer.poll(10)
        assert message is not None and not message.error()
        found[int(message.value())] = message.timestamp()[1]
    consumer.close()
    assert found.pop(3) >= before
    assert found == {0: stamps[0], 1: stamps[1], 2: stamps[2], 4: stamps[4]}


def test_committed_batch_is_not_written_again(node, topic, options):
    once = options(delivery="exactly-once")
    for _ in range(2):
        SinkTask(once, Task("q", 0, 7)).write(rows("a", "b"))
    SinkTask(once, Task("q", 1, 7)).write(rows("other task"))
    SinkTask(once, Task("q2", 0, 7)).write(rows("other sink"))
    SinkTask(once, Task("q", 0, 8)).write(rows("next"))
    assert committed(node, topic) == ["a", "b", "next", "other sink", "other task"]


def test_replay_with_another_number_of_rows_fails(node, topic, options):
    once = options(delivery="exactly-once")
    SinkTask(once, Task("recut", 0, 7)).write(rows("a", "b"))
    with pytest.raises(RowsDiffer, match="task 0 of micro-batch 7 was committed with 2 rows"):
        SinkTask(once, Task("recut", 0, 7)).write(rows("a", "b", "c"))
    skipping = options(delivery="exactly-once", onReplayMismatch="skip")
    SinkTask(skipping, Task("recut", 0, 7)).write(rows("a", "b", "c"))
    assert committed(node, topic) == ["a", "b"]


def test_marker_without_row_count_is_accepted(node, topic, options):
    once = options(delivery="exactly-once")
    client = sink_task.client_for(once.client)
    producer = RawProducer(client, sink_task._produce_options(once, None))
    producer.open()
    key = marker_key("of before", 0)
    place = Markers(client, once.marker_topic).place(key)
    producer.send({place: [marker_record(key, Marker(7))]})
    SinkTask(once, Task("of before", 0, 7)).write(rows("a"))
    assert committed(node, topic) == []


STEPS = ["open", "send 1", "send 2", "send marker", "before commit", "after commit"]


@pytest.mark.parametrize("step", STEPS)
def test_crash_at_any_step_and_replay_write_once(node, topic, options, monkeypatch, step):
    once = options(delivery="exactly-once")
    steps = iter(STEPS)

    def at(name):
        if name == step:
            raise Crash

    with monkeypatch.context() as patched:
        for method in ("open", "send", "commit", "abort"):
            whole = getattr(RawProducer, method)

            def run(self, *args, method=method, whole=whole):
                if method == "abort":
                    raise Fenced("a crashed worker aborts nothing")
                if method == "commit":
                    at(next(steps))
                whole(self, *args)
                at(next(steps))

            patched.setattr(RawProducer, method, run)
        with pytest.raises(Crash):
            SinkTask(once, Task(f"crash at {step}", 0, 3)).write(rows("a", "b"))
    assert committed(node, topic) == (["a", "b"] if step == "after commit" else [])
    SinkTask(once, Task(f"crash at {step}", 0, 3)).write(rows("a", "b"))
    assert committed(node, topic) == ["a", "b"]


def test_zombie_cannot_commit_after_its_replay(node, topic, options):
    once = options(delivery="exactly-once")

    def overtaken():
        yield from rows("a")
        SinkTask(once, Task("zombie", 0, 1)).write(rows("a", "b"))
        yield from rows("b")

    with pytest.raises(Fenced, match="ottla-sink-zombie-0"):
        SinkTask(once, Task("zombie", 0, 1)).write(overtaken())
    assert committed(node, topic) == ["a", "b"]


def test_new_process_finds_existing_markers(node, topic, options, monkeypatch):
    once = options(delivery="exactly-once")
    SinkTask(once, Task("old", 0, 5)).write(rows("a"))
    monkeypatch.setattr(sink_task, "_markers", {})
    SinkTask(once, Task("old", 0, 5)).write(rows("a"))
    assert committed(node, topic) == ["a"]


def test_atomic_batches_use_one_transaction(node, topic, options, monkeypatch):
    whole = options(delivery="exactly-once", atomicBatches="true")
    parts = [SinkTask(whole, Task("all", task, 0)).gather(rows(f"{task}")) for task in range(3)]
    assert committed(node, topic) == []
    for _ in range(2):
        write_gathered(whole, Task("all", 0, 0), parts)
    assert committed(node, topic) == ["0", "1", "2"]
    monkeypatch.setattr(sink_task, "GATHERED_BYTES_MAX", 10)
    with pytest.raises(TooLarge, match="atomicBatches"):
        SinkTask(whole, Task("all", 0, 1)).gather(rows("longer than ten"))


def test_markers_of_a_finished_write_are_removed(node, topic, options):
    once = options(delivery="exactly-once")
    SinkTask(once, Task("over", 0, 0)).write(rows("a"))
    forget(once, "over", 1)
    with pytest.raises(MarkersMissing):
        SinkTask(once, Task("over", 0, 0)).write(rows("a"))
    assert committed(node, topic) == ["a"]


def test_invalid_setting_error_names_the_option(options):
    with pytest.raises(OptionError, match=r"kafka\.compression\.type"):
        options(**{"kafka.compression.type": "rar"})
    with pytest.raises(OptionError, match=r"kafka\.delivery\.timeout\.ms"):
        options(**{"kafka.delivery.timeout.ms": "soon"})


def test_missing_topic_error_names_the_topic(node, options):
    away = options(topic="no such/topic")
    with pytest.raises(Refused, match="no such/topic"):
        SinkTask(away, Task("q", 0, 0)).write(rows("a"))


# -- options that were changed before a replay ------------------------------------


def gathered(options, sink_id, batch, *tasks):
    """Write a micro-batch with ``atomicBatches``: one list of values per task."""
    parts = [
        SinkTask(options, Task(sink_id, number, batch)).gather(rows(*values))
        for number, values in enumerate(tasks)
    ]
    write_gathered(options, Task(sink_id, 0, batch), parts)


@pytest.mark.parametrize("batch", [0, 4])
def test_micro_batch_of_atomic_batches_is_not_written_again_by_tasks(node, topic, options, batch):
    whole = options(delivery="exactly-once", atomicBatches="true")
    tasks = options(delivery="exactly-once")
    gathered(whole, f"to tasks {batch}", batch, ["a"], ["b"])
    for number, value in enumerate("ab"):
        SinkTask(tasks, Task(f"to tasks {batch}", number, batch)).write(rows(value))
        SinkTask(tasks, Task(f"to tasks {batch}", number, batch + 1)).write(rows(f"{value} next"))
    gathered(whole, f"to tasks {batch}", batch + 2, ["c"], ["d"])
    assert committed(node, topic) == ["a", "a next", "b", "b next", "c", "d"]


@pytest.mark.parametrize("batch", [0, 4])
def test_committed_tasks_are_left_out_of_an_atomic_batch(node, topic, options, batch):
    whole = options(delivery="exactly-once", atomicBatches="true")
    tasks = options(delivery="exactly-once")
    sink_id = f"to one {batch}"
    SinkTask(tasks, Task(sink_id, 1, batch)).write(rows("b", "b2"))
    for _ in range(2):
        gathered(whole, sink_id, batch, ["a"], ["b", "b2"], ["c"])
    assert committed(node, topic) == ["a", "b", "b2", "c"]
    with pytest.raises(RowsDiffer, match="task 1 of micro-batch"):
        gathered(whole, sink_id, batch, ["a"], ["b"], ["c", "d"])


def test_atomic_batch_fences_a_task_that_is_still_writing(node, topic, options):
    whole = options(delivery="exactly-once", atomicBatches="true")
    tasks = options(delivery="exactly-once")

    def overtaken():
        yield from rows("a")
        gathered(whole, "mixed", 0, ["a", "b"])
        yield from rows("b")

    with pytest.raises(Fenced):
        SinkTask(tasks, Task("mixed", 0, 0)).write(overtaken())
    assert committed(node, topic) == ["a", "b"]


def test_task_fences_an_atomic_batch_that_is_still_being_written(node, topic, options):
    whole = options(delivery="exactly-once", atomicBatches="true")
    tasks = options(delivery="exactly-once")
    gathered(whole, "mixed back", 6, ["before"])
    part = SinkTask(whole, Task("mixed back", 0, 7)).gather(rows("a"))

    def overtaken():
        yield part
        SinkTask(tasks, Task("mixed back", 0, 7)).write(rows("a"))

    with pytest.raises(Fenced):
        write_gathered(whole, Task("mixed back", 0, 7), overtaken())
    assert committed(node, topic) == ["a", "before"]


def test_run_behind_the_markers_is_rejected(node, topic, options):
    once = options(delivery="exactly-once")
    whole = options(delivery="exactly-once", atomicBatches="true")
    SinkTask(once, Task("restored", 0, 8)).write(rows("a"))
    for chosen in (once, options(delivery="exactly-once", onReplayMismatch="skip")):
        with pytest.raises(Outdated, match=r"micro-batch 8 is already written.*old copy"):
            SinkTask(chosen, Task("restored", 0, 7)).write(rows("b"))
    with pytest.raises(Outdated):
        gathered(whole, "restored", 7, ["b"])
    gathered(whole, "restored whole", 8, ["c"])
    with pytest.raises(Outdated):
        gathered(whole, "restored whole", 7, ["d"])
    with pytest.raises(Outdated):
        SinkTask(once, Task("restored whole", 0, 7)).write(rows("d"))
    assert committed(node, topic) == ["a", "c"]


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_changed_marker_topic_is_rejected(node, topic, options, atomic):
    chosen = {"delivery": "exactly-once", "atomicBatches": atomic}

    def write(sink_options):
        if atomic == "true":
            gathered(sink_options, f"moved {atomic}", 3, ["a"])
        else:
            SinkTask(sink_options, Task(f"moved {atomic}", 0, 3)).write(rows("a"))

    write(options(**chosen))
    elsewhere = options(**chosen, markerTopic=f"{topic}-markers")
    for _ in range(2):
        with pytest.raises(MarkersMissing, match=f"{topic}-markers.*markerTopic"):
            write(elsewhere)
    write(options(**chosen))
    assert committed(node, topic) == ["a"]


def test_task_that_only_aborted_before_needs_no_marker(node, topic, options):
    once = options(delivery="exactly-once")

    def failing():
        yield from rows("a")
        raise Crash

    with pytest.raises(Crash):
        SinkTask(once, Task("aborted", 0, 0)).write(failing())
    SinkTask(once, Task("aborted", 0, 0)).write(rows("a"))
    assert committed(node, topic) == ["a"]


def test_markers_are_found_after_their_topic_has_more_partitions(node, topic, options, monkeypatch):
    once = options(delivery="exactly-once", markerTopic=f"{topic}-markers")
    for number in range(12):
        SinkTask(once, Task("grown", number, 3)).write(rows(f"{number}"))
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_partitions([NewPartitions(f"{topic}-markers", 13)]).values():
        future.result(SECONDS_MAX)
    sink_task.client_for(once.client).forget(f"{topic}-markers")
    monkeypatch.setattr(sink_task, "_markers", {})
    for number in range(12):
        SinkTask(once, Task("grown", number, 3)).write(rows(f"{number}"))
    assert committed(node, topic) == sorted(map(str, range(12)))


def test_more_rows_than_committed_are_rejected_though_fewer_are_skipped(node, topic, options):
    once = options(delivery="exactly-once", onReplayMismatch="skip-fewer")
    SinkTask(once, Task("letters", 0, 7)).write(rows("a", "b"))
    SinkTask(once, Task("letters", 0, 7)).write(rows("a"))
    with pytest.raises(RowsDiffer):
        SinkTask(once, Task("letters", 0, 7)).write(rows("a", "b", "c"))
    assert committed(node, topic) == ["a", "b"]


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_changed_sink_id_of_a_stream_is_rejected(node, topic, options, atomic):
    once = options(delivery="exactly-once", atomicBatches=atomic)
    query = f"query-{atomic}"

    def write(sink_id, query_id):
        work = SinkTask(once, Task(sink_id, 0, 3, query_id))
        if atomic == "true":
            write_gathered(once, Task(sink_id, 0, 3, query_id), [work.gather(rows("a"))])
        else:
            work.write(rows("a"))

    write(f"orders-{query}", query)
    with pytest.raises(MarkersMissing, match=f"has written as sink orders-{query}.* 'orders'"):
        write(query, query)
    with pytest.raises(MarkersMissing, match="'orders'"):
        write(f"other-{query}", query)
    write(f"orders-{query}", query)
    assert committed(node, topic) == ["a"]
    write(f"other-{query}", None)  # a second sink in foreachBatch
    assert committed(node, topic) == ["a", "a"]


def test_marker_is_found_behind_the_open_transaction_of_another_sink(
    node, topic, options, monkeypatch
):
    """A killed task leaves its transaction open, and others share the partition of its marker."""
    once = options(delivery="exactly-once")
    client = sink_task.client_for(once.client)
    key = marker_key("behind", 0)
    place = Markers(client, once.marker_topic).place(key)
    killed = RawProducer(client, sink_task._produce_options(once, "killed"))
    killed.open()
    killed.send({place: [marker_record(key, Marker(8)), marker_record(b"killed/0", Marker(1))]})
    aborted = RawProducer(client, sink_task._produce_options(once, "aborted"))
    aborted.open()
    aborted.send({place: [marker_record(key, Marker(9))]})
    aborted.abort()
    for _ in range(2):
        SinkTask(once, Task("behind", 0, 7)).write(rows("a"))
    monkeypatch.setattr(sink_task, "_markers", {})
    SinkTask(once, Task("behind", 0, 7)).write(rows("a"))
    SinkTask(once, Task("behind", 0, 8)).write(rows("b"))
    killed.abort()
    SinkTask(once, Task("behind", 0, 8)).write(rows("b"))
    assert committed(node, topic) == ["a", "b"]
