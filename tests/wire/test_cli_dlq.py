"""``ottla dlq`` against a node: dead letters of a share group are listed, shown and sent back."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from test_cli_groups import Ottla
from test_share_wire import REJECT, Member, Wire, create, letters, produce, until
from tests.patience import SECONDS_MAX

from ottla.client.connection import ConnectionLost
from ottla.client.transaction import TransactionalWriter
from ottla.operations import redrive as redriving
from ottla.testing import Cluster, run_node


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
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture
def ottla(node: Cluster) -> Ottla:
    return Ottla(node.bootstrap)


def values(node: Cluster, topic: str, count: int) -> list[bytes | None]:
    return [value for value, _ in letters(node, topic, count)]


def fill(node: Cluster, ottla: Ottla, name: str) -> str:
    """Write dead letters with copies of ten records of a topic; return the dead-letter topic."""
    dead = f"dlq.{name}"
    wire = Wire(node.bootstrap)
    create(wire, name)
    create(wire, dead, errors_deadletterqueue_group_enable="true")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(10):
        reason = b"rejected" if number % 2 else b"used up"
        headers = [
            ("trace", str(number).encode()),
            ("__dlq.errors.topic", name.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", str(number).encode()),
            ("__dlq.errors.group", b"workers"),
            ("__dlq.errors.message", reason),
        ]
        producer.produce(dead, str(number).encode(), b"k", headers=headers)
    assert producer.flush(SECONDS_MAX) == 0
    wire.close()
    return dead


def test_letters_are_listed_with_their_reasons(node: Cluster, ottla: Ottla) -> None:
    dead = fill(node, ottla, "listed")
    (row,) = [each for each in ottla.json("dlq", "list") if each["topic"] == dead]
    assert row["waiting"] == 10
    assert row["reasons"] == {"used up": 5, "rejected": 5}
    shown = ottla.json("dlq", "show", dead, "--reason", "rejected", "-n", "2")
    assert [each["origin"] for each in shown] == ["listed-0 offset 1", "listed-0 offset 3"]
    assert [each["payload"] for each in shown] == ["1", "3"]


def test_topics_are_found_by_the_usual_names_or_given(node: Cluster, ottla: Ottla) -> None:
    wire = Wire(node.bootstrap)
    usual = ["dlq-a", "a-dlq", "a-dlt", "a.DLT", "connect-dlq-a"]
    for name in [*usual, "a.failed", "dltx"]:
        create(wire, name)
    wire.close()
    listed = [row["topic"] for row in ottla.json("dlq", "list")]
    assert {*usual, "a.failed", "dltx"} & {*listed} == {*usual}
    (row,) = ottla.json("dlq", "list", "a.failed")
    assert (row["topic"], row["waiting"]) == ("a.failed", 0)


def test_letters_for_two_partitions_are_counted_together(node: Cluster, ottla: Ottla) -> None:
    wire = Wire(node.bootstrap)
    create(wire, "dlq.wide")
    wire.close()
    ottla("topic", "create", "wide", "-p", "2")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(6):
        place = [("__dlq.errors.topic", b"wide"), ("__dlq.errors.partition", b"%d" % (number % 2))]
        producer.produce("dlq.wide", b"v", headers=[("trace", b"t"), *place])
    assert producer.flush(SECONDS_MAX) == 0
    (shown,) = ottla.json("dlq", "show", "dlq.wide", "-n", "1")
    assert shown["headers"] == ["trace=t"], "what is not shown by other rows"
    assert ottla.json("dlq", "redrive", "dlq.wide", "--all", "--dry-run")["to"] == {"wide": 6}


def test_selected_and_remaining_letters_are_sent_back_once_each(
    node: Cluster, ottla: Ottla
) -> None:
    dead = fill(node, ottla, "selected")
    ottla("dlq", "redrive", dead, code=2)
    tried = ottla.json("dlq", "redrive", dead, "--all", "--dry-run")
    assert (tried["letters"], tried["to"]) == (10, {"selected": 10})
    assert ottla.json("dlq", "redrive", dead, "--at", "0:4")["letters"] == 1
    found = ottla.json("dlq", "redrive", dead, "--reason", "rejected")
    assert (found["letters"], found["not_selected"]) == (5, 4)
    assert ottla.json("dlq", "drop", dead, "--at", "0:8")["letters"] == 1
    assert ottla.json("dlq", "redrive", dead, "--all")["letters"] == 3
    assert ottla.json("dlq", "redrive", dead, "--all")["letters"] == 0
    back = letters(node, "selected", 9)
    assert [value for value, _ in back] == [b"4", b"1", b"3", b"5", b"7", b"9", b"0", b"2", b"6"]
    assert back[0][1] == {"trace": "4", "ottla.dlq.redrives": "1"}


def test_letters_go_to_another_topic(node: Cluster, ottla: Ottla) -> None:
    dead = fill(node, ottla, "moved")
    wire = Wire(node.bootstrap)
    create(wire, "elsewhere")
    wire.close()
    found = ottla.json("dlq", "redrive", dead, "--all", "--to", "elsewhere")
    assert found["to"] == {"elsewhere": 10}
    assert len(values(node, "elsewhere", 10)) == 10


@pytest.mark.parametrize("step", ["write", "commit_offsets", "commit"])
@pytest.mark.parametrize("is_after", [False, True])
def test_failed_steps_neither_lose_nor_double_a_letter(
    node: Cluster, ottla: Ottla, step: str, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"failing-{step}-{is_after}".replace("_", "-")
    dead = fill(node, ottla, name)
    original = getattr(TransactionalWriter, step)
    failures = [True, True]

    async def fails(self: TransactionalWriter, *arguments: object) -> object:
        if failures and not is_after:
            failures.pop()
            raise ConnectionLost("before")
        result = await original(self, *arguments)
        if failures:
            failures.pop()
            raise ConnectionLost("after")
        return result

    monkeypatch.setattr(TransactionalWriter, step, fails)
    monkeypatch.setattr(redriving, "LETTERS_PER_TRANSACTION", 3)
    ottla.json("dlq", "redrive", dead, "--all")
    assert not failures
    assert ottla.json("dlq", "redrive", dead, "--all")["letters"] == 0
    (row,) = [each for each in ottla.json("dlq", "list") if each["topic"] == dead]
    assert row["waiting"] == 0
    committed = ottla("consume", name, "-o", "beginning", "-e", "-f", "%s ")
    assert committed.split() == [str(number) for number in range(10)]


def test_letter_without_a_copy_is_sent_back_from_its_own_topic(node: Cluster, ottla: Ottla) -> None:
    wire = Wire(node.bootstrap)
    create(wire, "sparse")
    create(wire, "dlq.sparse", ottla_errors_deadletterqueue_group_enable="true")
    produce(node, "sparse", range(10))
    ottla("config", "set", "group", "g", "share.auto.offset.reset=earliest")
    ottla("config", "set", "group", "g", "ottla.errors.deadletterqueue.topic.name=dlq.sparse")
    member = Member(wire, "g", "sparse").join()
    until(lambda: member.got() == [(0, 9, 1)])
    member.acknowledge((0, 9, REJECT))
    assert values(node, "dlq.sparse", 10) == [None] * 10
    assert ottla.json("dlq", "redrive", "dlq.sparse", "--all")["letters"] == 10
    assert values(node, "sparse", 20)[10:] == [str(number).encode() for number in range(10)]
    wire.close()
