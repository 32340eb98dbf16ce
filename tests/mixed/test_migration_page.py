"""The walk through docs/migration.md works as written: three nodes to Ottla, and back to Kafka."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.mixed.cluster import MixedCluster, run_mixed
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need

pytestmark = pytest.mark.jvm

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
SECONDS_MAX = 300


def scripts(section: str) -> list[str]:
    """Return the shell blocks of a section of the page."""
    text = PAGE.read_text().partition(f"## {section}\n")[2]
    text = re.split(r"^##+ ", text, maxsplit=1, flags=re.M)[0]
    return re.findall(r"```sh\n(.*?)```", text, re.S)


class Shell:
    """Runs the commands of the page against one cluster."""

    def __init__(self, cluster: MixedCluster, tmp_path: Path) -> None:
        self.cluster = cluster
        self.directory = tmp_path

    def run(self, script: str, node_id: int = 1) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.directory,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "BROKERS": self.cluster.bootstrap,
                "NODE": str(self.cluster.settings(node_id).parent),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, command: str) -> list[dict[str, object]]:
        found = json.loads(self.run(f"{command} -o json"))
        return found if isinstance(found, list) else [found]

    def replace(self, node_id: int, kind: Kind, wait: str) -> None:
        """Replace one node as the page says; ``ottla server`` is started by the cluster."""
        self.cluster.replace(node_id, kind)
        (status,) = self.json(wait)
        nodes = status["nodes"]
        assert isinstance(nodes, list)
        told = {each["id"]: each["software"] for each in nodes}
        assert told == {
            each: "Kafka" if now.is_kafka else "Ottla" for each, now in self.cluster.kinds.items()
        }


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failed: list[object] = []
    for number in numbers:
        producer.produce("orders", b"%d" % number, partition=0, on_delivery=lambda e, _: (
            failed.append(e) if e else None))  # fmt: skip
    assert producer.flush(SECONDS_MAX) == 0 and failed == []


def consume(bootstrap: str, count: int) -> list[int]:
    config = {"bootstrap.servers": bootstrap, "group.id": "readers"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    found: list[int] = []
    try:
        consumer.subscribe(["orders"])
        while len(found) < count:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error() is None:
                found.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_three_nodes_migrate_and_go_back_as_the_page_says(tmp_path: Path) -> None:
    need()
    check_and_plan, step = scripts("Roll three nodes")
    (way_back,) = scripts("The way back")
    check, plan = check_and_plan.strip().splitlines()
    _, server, wait = step.strip().splitlines()
    assert server == "ottla server $NODE/server.properties"
    plan_back, _, wait_back = way_back.strip().splitlines()
    with run_mixed(dict.fromkeys((1, 2, 3), KAFKA), tmp_path / "cluster") as cluster:
        shell = Shell(cluster, tmp_path)
        shell.run("ottla topic create orders -p 1 -r 3 -b $BROKERS")
        produce(cluster.bootstrap, range(100))
        cluster.wait_whole()
        for node_id in (1, 2, 3):
            shell.run(check, node_id)
        (active,) = [
            each["id"]
            for each in shell.json(wait)[0]["nodes"]  # type: ignore[attr-defined]
            if each["active_controller"]
        ]
        steps = [int(str(each["node"])) for each in shell.json(plan)]
        assert (sorted(steps), steps[-1]) == ([1, 2, 3], active)
        for turn, node_id in enumerate(steps, start=1):
            shell.replace(node_id, OTTLA, wait)
            produce(cluster.bootstrap, range(turn * 100, turn * 100 + 100))
        assert consume(cluster.bootstrap, 400) == list(range(400))
        for turn, row in enumerate(shell.json(plan_back), start=4):
            shell.replace(int(str(row["node"])), KAFKA, wait_back)
            produce(cluster.bootstrap, range(turn * 100, turn * 100 + 100))
        assert shell.run(plan_back) == ""
        assert consume(cluster.bootstrap, 300) == list(range(400, 700)), "groups go on"
