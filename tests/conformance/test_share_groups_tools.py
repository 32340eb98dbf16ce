"""Java's share consumer and Kafka's tool for share groups, against a node of ours."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from conftest import Kafka
from ottla.cli.app import app
from ottla.testing import Cluster, run_node

pytestmark = pytest.mark.jvm

HERE = Path(__file__).parent
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
PARTITIONS, EACH = 4, 250
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


def ottla(node: Cluster, *arguments: str) -> list[dict[str, Any]]:
    environment = {"OTTLA_BOOTSTRAP": node.bootstrap}
    done = CliRunner().invoke(app, [*arguments, "-o", "json"], env=environment)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def counted(line: str) -> dict[str, int]:
    words = line.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def test_a_queue_read_by_java_and_shown_by_kafkas_tool(kafka: Kafka) -> None:
    with run_node(processes=True, config=CONFIG) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("queue", PARTITIONS, 1)])["queue"].result(30)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(PARTITIONS * EACH):
            producer.produce("queue", str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        at = ("--bootstrap-server", node.bootstrap)
        for group in ("implicit", "explicit"):
            ottla(node, "config", "set", "group", group, "share.auto.offset.reset=earliest")

        output = kafka.run(
            str(HERE / "ShareQueue.java"), node.bootstrap, "queue", str(PARTITIONS * EACH)
        )

        implicit, explicit = map(counted, output.splitlines())
        total = PARTITIONS * EACH
        assert implicit == {"implicit": total, "again": 0}
        offsets = [offset for offset in range(EACH)] * PARTITIONS
        rejected = sum(1 for offset in offsets if offset % 7 == 0)
        assert (explicit["explicit"], explicit["twice"]) == (total, 0)
        assert (explicit["reject"], explicit["accept"]) == (rejected, total - rejected)
        assert explicit["release"] > 0
        assert explicit["renew"] > 0

        listed = kafka.run(SHARE_GROUPS, *at, "--list")
        assert set(listed.split()) == {"implicit", "explicit"}
        rows = [
            line.split()
            for line in kafka.run(
                SHARE_GROUPS, *at, "--describe", "--group", "explicit", "--offsets"
            ).splitlines()
            if line.startswith("explicit")
        ]
        assert sorted(row[2:5] for row in rows) == [
            [str(partition), str(EACH), "0"] for partition in range(PARTITIONS)
        ]
        kafka.run(
            *(SHARE_GROUPS, *at, "--reset-offsets", "--group", "explicit", "--topic", "queue"),
            *("--to-earliest", "--execute"),
        )
        rows = ottla(node, "share", "offsets", "explicit")
        assert [row["start"] for row in rows] == [0] * PARTITIONS
        kafka.run(SHARE_GROUPS, *at, "--delete", "--group", "explicit")
        assert [row["group"] for row in ottla(node, "share", "list")] == ["implicit"]
