"""`ottla consume` in a group, and of topics by pattern."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    interval = "heartbeat.interval.ms"
    config = {f"group.consumer.{name}{interval}": 500 for name in ("", "min.")}
    with run_node(directory=tmp_path_factory.mktemp("node"), config=config) as found:
        yield found


def ottla(node: Cluster, *arguments: str, given: str = "", code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments, input=given, env={"OTTLA_BOOTSTRAP": node.bootstrap})
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


def fill(node: Cluster, topic: str, values: range, tmp_path: Path, partitions: int = 2) -> None:
    ottla(node, "topic", "create", topic, "-p", str(partitions), "--if-not-exists")
    (tmp_path / "values").write_text("".join(f"{each}\n" for each in values))
    ottla(node, "produce", topic, str(tmp_path / "values"))


def lag(node: Cluster, group: str) -> int:
    rows = json.loads(ottla(node, "group", "lag", group, "-o", "json"))
    return sum(each["lag"] for each in rows)


def test_group_continues_where_it_stopped(node: Cluster, tmp_path: Path) -> None:
    fill(node, "resumed", range(10), tmp_path)
    first = ottla(node, "consume", "resumed", "-g", "g1", "-e")
    assert sorted(map(int, first.split())) == list(range(10))
    assert lag(node, "g1") == 0
    fill(node, "resumed", range(10, 15), tmp_path)
    again = ottla(node, "consume", "resumed", "-g", "g1", "-e")
    assert sorted(map(int, again.split())) == list(range(10, 15))


def test_records_that_are_not_printed_are_not_committed(node: Cluster, tmp_path: Path) -> None:
    fill(node, "counted", range(20), tmp_path)
    seen = ottla(node, "consume", "counted", "-g", "g2", "-c", "7").split()
    assert len(seen) == 7 and lag(node, "g2") == 13
    seen += ottla(node, "consume", "counted", "-g", "g2", "-e").split()
    assert sorted(map(int, seen)) == list(range(20))


def test_patterns_choose_topics_with_and_without_a_group(node: Cluster, tmp_path: Path) -> None:
    fill(node, "metrics.a", range(3), tmp_path, 1)
    fill(node, "metrics.b", range(3, 6), tmp_path, 1)
    fill(node, "other.metrics", range(6, 9), tmp_path, 1)
    for options in ([], ["-g", "g3"]):
        found = ottla(node, "consume", r"^metrics\..*", "-e", *options)
        assert sorted(map(int, found.split())) == list(range(6))
    assert "no topic matches" in ottla(node, "consume", "^nothing.*", "-e", code=1)
    assert "'^('" in ottla(node, "consume", "^(", "-e", code=2)


def test_partitions_cannot_be_chosen_in_a_group(node: Cluster) -> None:
    assert "assigns partitions" in ottla(node, "consume", "t", "-g", "g", "-p", "0", code=2)


def test_two_members_share_partitions_and_one_takes_over(node: Cluster, tmp_path: Path) -> None:
    fill(node, "shared", range(4), tmp_path, 4)
    environment = {**os.environ, "OTTLA_BOOTSTRAP": node.bootstrap, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "ottla.cli.main", "consume", "shared", "-g", "g4"]

    def member_partitions() -> list[int]:
        (found,) = json.loads(ottla(node, "group", "describe", "g4", "-o", "json"))
        return sorted(len(each["assigned"].get("shared", ())) for each in found["members"])

    def wait_for(wanted: list[int]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while (found := member_partitions()) != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    members = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while "g4" not in ottla(node, "group", "list"):
            assert time.monotonic() < deadline
        wait_for([2, 2])
        members[0].send_signal(signal.SIGINT)
        first, _ = members[0].communicate(timeout=SECONDS_MAX)
        wait_for([4])
        fill(node, "shared", range(4, 8), tmp_path, 4)
        deadline = time.monotonic() + SECONDS_MAX
        while lag(node, "g4"):
            assert time.monotonic() < deadline
        members[1].send_signal(signal.SIGINT)
        second, _ = members[1].communicate(timeout=SECONDS_MAX)
    finally:
        for member in members:
            member.kill()
            member.wait()
    assert sorted(map(int, first.split() + second.split())) == list(range(8))


def test_topic_that_producing_created_is_mentioned(node: Cluster, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("one\n")
    arguments = ["produce", "unplanned", str(tmp_path / "values")]
    environment = {"OTTLA_BOOTSTRAP": node.bootstrap}
    said = [CliRunner().invoke(app, arguments, env=environment).stderr for _ in range(2)]
    assert said == ["created topic unplanned with 1 partition: it did not exist\n", ""]


def test_top_shows_rates_of_the_cluster(node: Cluster, tmp_path: Path) -> None:
    fill(node, "busy", range(3), tmp_path, 1)
    environment = {**os.environ, "OTTLA_BOOTSTRAP": node.bootstrap, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "ottla.cli.main", "top", "-i", "0.2", "-o", "json"]
    watching = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            fill(node, "busy", range(100), tmp_path, 1)
            found = json.loads(watching.stdout.readline())
            if "busy" in {each["topic"] for each in found["hot_partitions"]}:
                break
            assert time.monotonic() < deadline, found
        watching.send_signal(signal.SIGINT)
        assert watching.wait(SECONDS_MAX) == 130
    finally:
        watching.kill()
        watching.communicate()
    assert found["records_per_s"] > 0 and found["under_replicated"] == 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ottla consume comple", {"completed.one", "completed.two"}),
        ("ottla topic describe completed.t", {"completed.two"}),
        ("ottla group describe complet", {"completers"}),
        ("ottla consume -b 127.0.0.1:1 comple", set()),
    ],
)
def test_names_are_completed_from_the_broker(
    node: Cluster, tmp_path: Path, words: str, found: set[str]
) -> None:
    for name in ("completed.one", "completed.two"):
        fill(node, name, range(1), tmp_path, 1)
    ottla(node, "consume", "completed.one", "-g", "completers", "-e")
    environment = {
        **os.environ,
        "OTTLA_BOOTSTRAP": node.bootstrap,
        "_OTTLA_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    command = [str(Path(sys.executable).parent / "ottla")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert set(done.stdout.split()) == found, done.stderr
