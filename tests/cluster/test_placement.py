"""Moves of replicas between brokers and directories, by the command line, on whole nodes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing.cluster import Cluster, run_cluster


class Ottla:
    """Runs commands against one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.said = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": self.bootstrap})
        assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
        self.said = done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> list[dict]:
        return json.loads(self(*arguments, "-o", "json"))

    def partitions(self, topic: str) -> list[dict]:
        (found,) = self.json("topic", "describe", topic)
        return found["partitions"]

    def produce(self, tmp: Path, topic: str, count: int) -> None:
        lines = tmp / "lines"
        lines.write_text("".join(f"line-{at}\n" for at in range(count)))
        self("produce", topic, str(lines))

    def consume(self, topic: str) -> list[str]:
        return self("consume", topic, "-e").splitlines()


def test_partitions_move_between_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with run_cluster(1, config={"log.dirs": f"{first},{second}"}) as cluster:
        ottla = Ottla(cluster)
        ottla("topic", "create", "orders", "-p", "2", "-r", "1")
        ottla.produce(tmp_path, "orders", 500)
        for target in (first, second, first):
            moved = ottla.json(
                "logdir", "move", "orders", "--broker", "1", "--to", str(target), "-w"
            )
            assert [row["partition"] for row in moved] == [0, 1]
            assert re.search(r"^moved 2 replicas, [\d.]+ [KM]?i?B, in ", ottla.said), ottla.said
            rows = ottla.json("logdir", "list", "1", "-p")
            held = {(r["topic"], r["partition"]): r["directory"] for r in rows}
            assert held[("orders", 0)] == held[("orders", 1)] == str(target)
            assert sorted(ottla.consume("orders")) == sorted(f"line-{at}" for at in range(500))
        assert "LOG_DIR_NOT_FOUND" in ottla(
            "logdir", "move", "orders", "--broker", "1", "--to", "/nowhere", code=1
        )
        summary = ottla.json("logdir", "list")
        assert [row["directory"] for row in summary] == [str(first), str(second)]
        assert [row["state"] for row in summary] == ["online"] * 2
        cluster.restart(1)
        assert len(ottla.consume("orders")) == 500


def test_replicas_move_between_brokers(tmp_path: Path) -> None:
    with run_cluster(3) as cluster:
        ottla = Ottla(cluster)
        ottla("topic", "create", "orders", "-p", "3", "-r", "1")
        ottla.produce(tmp_path, "orders", 300)
        ottla("topic", "reassign", "orders", "--to", "2,3", "-r", "2", "-w")
        assert re.search(r"^moved \d partitions, [\d.]+ KiB, in [\d.]+ s$", ottla.said), ottla.said
        assert all(sorted(p["replicas"]) == [2, 3] for p in ottla.partitions("orders"))
        ottla("topic", "reassign", "orders", "--to", "2,3", "-r", "2", "-w")
        assert ottla.said == "every partition has these replicas already\n"
        ottla("topic", "reassign", "orders", "--to", "1,2,3", "-r", "3", "-w")
        assert all(sorted(p["isr"]) == [1, 2, 3] for p in ottla.partitions("orders"))
        assert len(ottla.consume("orders")) == 300
        assert "every other broker" in ottla("cluster", "drain", "3", code=1)
        ottla("topic", "reassign", "orders", "-r", "2", "-w")
        ottla("cluster", "drain", "3", "-w")
        assert ottla.said.startswith("moved "), ottla.said
        assert all(sorted(p["replicas"]) == [1, 2] for p in ottla.partitions("orders"))
        assert len(ottla.consume("orders")) == 300
        assert ottla("topic", "reassign") == ""
        assert "unregistered" not in ottla("cluster", "unregister", "2", code=1)


def test_throttled_move_is_slowed_and_leaves_no_throttle(tmp_path: Path) -> None:
    with run_cluster(3) as cluster:
        ottla = Ottla(cluster)

        def throttles() -> list[str]:
            places = (("topic", "orders"), *(("broker", str(at)) for at in (1, 2, 3)))
            rows = [row for place in places for row in ottla.json("config", "describe", *place)]
            return [row["key"] for row in rows if "replication.throttled" in row["key"]]

        ottla("topic", "create", "orders", "-p", "1", "-r", "1")
        (partition,) = ottla.partitions("orders")
        others = [each for each in (1, 2, 3) if each != partition["leader"]]
        lines = tmp_path / "lines"
        lines.write_text("".join("x" * 20_000 + "\n" for _ in range(100)))
        ottla("produce", "orders", str(lines))
        to = ",".join(str(each) for each in (partition["leader"], *others[:1]))
        ottla("topic", "reassign", "orders", "--to", to, "-r", "2", "--throttle", "1000")
        assert (
            ottla.said == "1 partition is being moved; `ottla topic reassign` shows what is left\n"
        )
        (moving,) = ottla.json("topic", "reassign", "--verify")
        assert moving["adding"] == others[:1], "two megabytes at a kilobyte a second"
        assert len(throttles()) == 6, "two of each of the brokers, two of the topic"
        ottla("topic", "reassign", "--throttle", "1000000000")
        ottla(
            "topic",
            "reassign",
            "orders",
            "--to",
            "1,2,3",
            "-r",
            "3",
            "--throttle",
            "1000000000",
            "-w",
        )
        # Each broker is asked for its own configuration, and may see the change later than others.
        _wait(lambda: throttles() == [])
        assert len(ottla.consume("orders")) == 100


def test_preferred_leaders_are_elected(tmp_path: Path) -> None:
    with run_cluster(3, config={"auto.leader.rebalance.enable": "false"}) as cluster:
        ottla = Ottla(cluster)
        ottla("topic", "create", "orders", "-p", "3", "-r", "3")
        away = next(p for p in ottla.partitions("orders") if p["leader"] != 1)["leader"]
        cluster.restart(away)
        _wait_in_sync(ottla)
        led = [p["leader"] for p in ottla.partitions("orders")]
        assert away not in led
        elected = ottla.json("topic", "elect", "orders")
        assert elected
        assert all(p["leader"] == p["replicas"][0] for p in ottla.partitions("orders"))
        assert ottla("topic", "elect") == ""
        assert ottla.json("topic", "elect", "orders", "-p", "0") == []


def test_unclean_election_makes_an_incomplete_replica_leader(tmp_path: Path) -> None:
    with run_cluster(3, processes=True, controllers=1) as cluster:
        ottla = Ottla(cluster)
        ottla("topic", "create", "orders", "-p", "1", "-r", "1")
        ottla("topic", "reassign", "orders", "--to", "2,3", "-r", "2", "-w")
        ottla.produce(tmp_path, "orders", 10)
        leader = ottla.partitions("orders")[0]["leader"]
        (follower,) = {2, 3} - {leader}
        cluster.stop(follower)
        ottla.produce(tmp_path, "orders", 7)
        cluster.kill(leader)
        cluster.start(follower)
        _wait(lambda: ottla.partitions("orders")[0]["leader"] not in (leader, follower))
        (elected,) = ottla.json("topic", "elect", "orders", "--unclean")
        assert elected["partition"] == 0
        assert ottla.partitions("orders")[0]["leader"] == follower
        assert len(ottla.consume("orders")) == 10, "what it did not have is lost"


def test_stopped_broker_can_be_unregistered() -> None:
    with run_cluster(4, controllers=3) as cluster:
        ottla = Ottla(cluster)
        cluster.stop(4)
        (done,) = ottla.json("cluster", "unregister", "4")
        assert done == {"unregistered": 4}
        brokers = json.loads(ottla("cluster", "info", "-o", "json"))["brokers"]
        assert [each["id"] for each in brokers] == [1, 2, 3]
        assert "BROKER_ID_NOT_REGISTERED" in ottla("cluster", "unregister", "4", code=1)


def _wait(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
    raise AssertionError("condition not met in time")


def _wait_in_sync(ottla: Ottla) -> None:
    for _ in range(400):
        if all(len(p["isr"]) == 3 for p in ottla.partitions("orders")):
            return
    raise AssertionError("never in sync")
