"""``ottla group``, ``share`` and ``txn`` against a node, with real members and producers."""

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from test_share_wire import ACCEPT, Member, Wire
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node


class Ottla:
    """Runs commands in this process, against one node."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.said = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": self.bootstrap})
        assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
        self.said = done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "100",
        "ottla.metrics.listener": f"127.0.0.1:{free_ports(2)[0]}",
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ottla(node: Cluster) -> Ottla:
    """With a topic of two partitions, five records in each."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic("words", 2, 1), NewTopic("txns", 2, 1)]).values():
        future.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(10):
        producer.produce("words", str(number).encode(), partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0
    commit(node, "first", p0=0)  # the first FindCoordinator creates the internal topic
    return Ottla(node.bootstrap)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.05)


def commit(node: Cluster, group: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    places = [TopicPartition("words", int(name[1:]), at) for name, at in offsets.items()]
    try:
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def reading(node: Cluster, group: str, **more: Any) -> Consumer:
    config = {
        "bootstrap.servers": node.bootstrap,
        "group.id": group,
        "client.id": f"reader-of-{group}",
        "auto.offset.reset": "earliest",
        **more,
    }
    consumer = Consumer(config)
    consumer.subscribe(["words"])
    until(lambda: consumer.poll(0.1) is not None)
    return consumer


def test_group_commands_list_describe_and_delete(node: Cluster, ottla: Ottla) -> None:
    commit(node, "life", p0=2, p1=5)
    (listed,) = [row for row in ottla.json("group", "list") if row["group"] == "life"]
    assert (listed["type"], listed["state"], listed["coordinator"]) == ("classic", "Empty", 1)
    assert ottla.json("group", "list", "--type", "streams") == []
    (found,) = ottla.json("group", "describe", "life")
    assert found["lag"] == 3
    assert [(row["partition"], row["committed"], row["end"]) for row in found["offsets"]] == [
        (0, 2, 5),
        (1, 5, 5),
    ]
    assert "LAG" in ottla("group", "describe", "life")
    assert ottla.json("group", "delete", "life") == [{"deleted": "life"}]
    assert "GROUP_ID_NOT_FOUND" in ottla("group", "describe", "life", code=1)
    assert "GROUP_ID_NOT_FOUND" in ottla("group", "delete", "life", code=1)


def committed(ottla: Ottla, group: str) -> list[int | None]:
    (found,) = ottla.json("group", "describe", group)
    return [row["committed"] for row in found["offsets"]]


def test_reset_offsets_changes_offsets_only_with_execute(
    node: Cluster, ottla: Ottla, tmp_path: Path
) -> None:
    commit(node, "plan", p0=2, p1=5)
    reset = ("group", "reset-offsets", "plan")
    planned = ottla.json(*reset, "-t", "words", "--to-earliest")
    assert [(row["current"], row["new"]) for row in planned] == [(2, 0), (5, 0)]
    assert ottla.said.startswith("plan: 2 partitions to set: 2 back by 7 offsets\n"), ottla.said
    assert "nothing was changed; use --execute" in ottla.said
    assert committed(ottla, "plan") == [2, 5], "a plan changes nothing"
    ottla(*reset, "-t", "words:0", "--to-earliest", "--execute")
    assert ottla.said == "plan: 1 partition set: 1 back by 2 offsets\n"
    assert committed(ottla, "plan") == [0, 5]
    ottla(*reset, "--all-topics", "--shift-by", "-1", "--execute")
    assert committed(ottla, "plan") == [0, 4]
    file = tmp_path / "plan.csv"
    ottla(*reset, "--all-topics", "--to-latest", "--export", str(file))
    assert file.read_text() == "words,0,5\nwords,1,5\n"
    ottla(*reset, "--from-file", str(file), "--execute")
    assert committed(ottla, "plan") == [5, 5]
    ottla(*reset, "-t", "words", "--by-duration", "P1D", "--execute")
    assert committed(ottla, "plan") == [0, 0]
    ottla(*reset, "-t", "words", "--to-datetime", "2999-01-01T00:00:00", "--execute")
    assert committed(ottla, "plan") == [5, 5]
    ottla(*reset, "-t", "words", "--to-offset", "3", "--execute")
    assert committed(ottla, "plan") == [3, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        ["-t", "words"],
        ["-t", "words", "--to-latest", "--to-earliest"],
        ["--to-latest"],
        ["-t", "words", "--all-topics", "--to-latest"],
        ["-t", "words:x", "--to-latest"],
        ["-t", "words", "--to-datetime", "soon"],
        ["-t", "words", "--to-offset", "-5"],
    ],
)
def test_invalid_reset_options_are_rejected(ottla: Ottla, wrong: list[str]) -> None:
    ottla("group", "reset-offsets", "any", *wrong, code=2)


def test_reset_offsets_may_create_a_group(ottla: Ottla) -> None:
    ottla("group", "reset-offsets", "unborn", "-t", "words:1", "--to-latest", "--execute")
    assert committed(ottla, "unborn") == [5]
    text = ottla("group", "reset-offsets", "unborn", "-t", "words:7", "--to-latest", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_members_is_described_and_not_reset(
    node: Cluster, ottla: Ottla, protocol: str
) -> None:
    group = f"busy-{protocol}"
    consumer = reading(node, group, **{"group.protocol": protocol})
    try:
        until(lambda: ottla.json("group", "describe", group)[0]["state"] == "Stable")
        (found,) = ottla.json("group", "describe", group)
        assert found["type"] == protocol
        (member,) = found["members"]
        assert (member["client"], member["topics"]) == (f"reader-of-{group}", ["words"])
        assert member["assigned"] == {"words": [0, 1]}
        assert {row["member"] for row in found["offsets"]} == {member["member"]}
        reply = ottla("group", "reset-offsets", group, "-t", "words", "--to-latest", code=1)
        assert "NON_EMPTY_GROUP" in reply
        assert "NON_EMPTY_GROUP" in ottla("group", "delete", group, code=1)
        said = ottla("group", "explain", group)
        assert f"{group} is a {protocol} group, Stable" in said
        assert "It rebalanced last at 20" in said, "which the coordinator alone knows"
        assert f"client reader-of-{group} at 127.0.0.1" in said or protocol == "classic"
        assert "It waits for no member." in said
        document = ottla.json("group", "explain", group)
        assert document["sentences"][0].startswith(f"{group} is a {protocol} group, Stable")
        assert {"joined", "epoch", "rebalance"} & {note["kind"] for note in document["notes"]}
    finally:
        consumer.close()


def test_group_explain_page_decodes_group_names(node: Cluster, ottla: Ottla) -> None:
    commit(node, "odd/näme ", p0=1)
    assert "odd/näme  is a classic group, Empty" in ottla("group", "explain", "odd/näme ")
    assert "GROUP_ID_NOT_FOUND" in ottla("group", "explain", "nobody", code=1)
    (listener,) = ottla.json("config", "get", "broker", "1", "ottla.metrics.listener")
    host, _, port = listener["value"].rpartition(":")
    for path, status in (
        ("/groups/nobody/explain", 404),
        ("/groups/explain", 404),
        ("/groups//explain", 404),
        ("/groups/", 404),
        ("/groups/odd%2Fn%C3%A4me%20/explain", 200),
    ):
        connection = HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        connection.request("GET", path)
        assert connection.getresponse().status == status, path
        connection.close()


def test_share_commands_describe_reset_and_delete(node: Cluster, ottla: Ottla) -> None:
    ottla("config", "set", "group", "queue", "share.auto.offset.reset=earliest")
    wire = Wire(node.bootstrap)
    member = Member(wire, "queue", "words").join()
    member.fetch(records=2, share_acquire_mode=1)
    member.acknowledge((0, 1, ACCEPT))

    assert [row["group"] for row in ottla.json("share", "list")] == ["queue"]
    (found,) = ottla.json("share", "describe", "queue")
    assert found["members"][0]["assigned"] == {"words": [0, 1]}
    rows = ottla.json("share", "offsets", "queue")
    assert sorted(row["start"] or 0 for row in rows) == [0, 2]
    reset = ("share", "reset-offsets", "queue", "--all-topics", "--to-latest")
    assert "NON_EMPTY_GROUP" in ottla(*reset, code=1)
    text = ottla("group", "reset-offsets", "queue", "-t", "words", "--to-latest", code=1)
    assert "ottla share reset-offsets" in text

    member.acknowledge(session=-1)
    member.epoch = -1
    assert member.beat().error_code == 0
    wire.close()
    ottla("share", "reset-offsets", "queue", "-t", "words", "--to-latest")
    assert sorted(row["start"] or 0 for row in ottla.json("share", "offsets", "queue")) == [0, 2]
    ottla("share", "reset-offsets", "queue", "-t", "words", "--to-latest", "--execute")
    assert [row["start"] for row in ottla.json("share", "offsets", "queue")] == [5, 5]
    ottla("share", "delete-offsets", "queue", "words")
    assert ottla.json("share", "offsets", "queue") == []
    assert ottla.json("share", "delete", "queue") == [{"deleted": "queue"}]
    commit(node, "no-queue", p0=1)
    assert "it is a classic group" in ottla("share", "describe", "no-queue", code=1)


def test_txn_commands_list_and_describe_transactions(node: Cluster, ottla: Ottla) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("txns", b"open", partition=0)
    assert producer.flush(SECONDS_MAX) == 0

    listed = ottla.json("txn", "list", "--state", "Ongoing")
    assert "writer" in {each["transactional_id"] for each in listed}
    found = ottla.json("txn", "describe", "writer")
    assert (found["state"], found["partitions"]) == ("Ongoing", {"txns": [0]})
    assert ottla.json("txn", "hanging", "--older-than", "0") == [], "its coordinator knows of it"
    assert "TRANSACTIONAL_ID_NOT_FOUND" in ottla("txn", "abort", "nobody", code=1)

    aborted = ottla.json("txn", "abort", "writer")

    assert aborted["state_before"] == "Ongoing"
    until(lambda: ottla.json("txn", "describe", "writer")["state"] in ("CompleteAbort", "Empty"))
    with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER|fenced"):
        producer.commit_transaction(SECONDS_MAX)
    ottla("txn", "abort", code=2)
    ottla("txn", "abort", "writer", "--topic", "txns:0", "--start-offset", "1", code=2)
    ottla("txn", "abort", "--topic", "txns", "--start-offset", "1", code=2)
    nothing = ottla("txn", "abort", "--topic", "txns:0", "--start-offset", "1", code=1)
    assert "no transaction begins at 1" in nothing


def test_txn_abort_ends_a_hanging_transaction(node: Cluster, ottla: Ottla) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "hung"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("txns", b"open", partition=1)
    assert producer.flush(SECONDS_MAX) == 0
    place = ("txn", "abort", "--topic", "txns:1", "--start-offset")
    reply = ottla(*place, "999", code=1)
    start = reply.rsplit(":", 1)[1].strip()

    aborted = ottla.json(*place, start)

    assert aborted["start_offset"] == int(start)
    assert "nowhere" in ottla(*place, start, code=1), "nothing is open any more"


def test_group_lag_shows_each_partition(ottla: Ottla) -> None:
    ottla("group", "reset-offsets", "lagging", "--topic", "words", "--to-earliest", "--execute")
    rows = ottla.json("group", "lag", "lagging")
    assert [(row["topic"], row["partition"], row["lag"]) for row in rows] == [
        ("words", 0, 5),
        ("words", 1, 5),
    ]
    assert rows[0]["read/s"] is None, "one measurement gives no rate"
    assert "lagging" in {row["group"] for row in ottla.json("group", "lag")}


def test_client_metrics_commands_set_list_describe_and_delete(ottla: Ottla) -> None:
    ottla("client-metrics", "set", "all", "--metrics", "a.,b.", "--match", "client_id=x.*")
    ottla("client-metrics", "set", "all", "--interval", "5000")
    wanted = {
        "subscription": "all",
        "metrics": "a.,b.",
        "interval.ms": "5000",
        "match": "client_id=x.*",
    }
    assert ottla.json("client-metrics", "describe", "all") == wanted
    assert ottla.json("client-metrics", "list") == [wanted]
    assert "at least 100" in ottla("client-metrics", "set", "all", "--interval", "1", code=1)
    assert "nothing to set" in ottla("client-metrics", "set", "all", code=1)
    ottla("client-metrics", "delete", "all")
    assert "no such subscription" in ottla("client-metrics", "describe", "all", code=1)
