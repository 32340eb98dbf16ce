"""Apache Kafka's own consumers in one group of ours: both protocols, rolled both ways."""

import re
import shutil
from pathlib import Path

import pytest

from conftest import Kafka
from ottla.testing import run_node

pytestmark = pytest.mark.jvm

HERE = Path(__file__).parent
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 500,
    "offsets.topic.num.partitions": 1,
}
RECORDS = 40


def test_a_group_is_rolled_to_the_new_protocol_and_back(kafka: Kafka, tmp_path: Path) -> None:
    with run_node(processes=True, config=QUICK) as node:
        at = ("--bootstrap-server", node.bootstrap)
        kafka.run(TOPICS, *at, "--create", "--topic", "rolled", "--partitions", "4")
        lines = "".join(f"{number}\n" for number in range(RECORDS))
        kafka.run(CONSOLE_PRODUCER, *at, "--topic", "rolled", stdin=lines)
        output = kafka.run(str(HERE / "GroupRoll.java"), node.bootstrap).splitlines()
        steps = ["classic", "upgraded", "mixed", "consumer", "back", "downgraded", "classic"]
        assert output == [*(f"{step} even" for step in steps), f"reads {{1={RECORDS}}}"]


def test_kafka_reads_what_a_consumer_group_writes(kafka: Kafka, tmp_path: Path) -> None:
    with run_node(config=QUICK, directory=tmp_path / "node") as node:
        at = ("--bootstrap-server", node.bootstrap)
        kafka.run(TOPICS, *at, "--create", "--topic", "rolled", "--partitions", "2")
        kafka.run(CONSOLE_PRODUCER, *at, "--topic", "rolled", stdin="1\n2\n")
        kafka.run(
            *(CONSOLE_CONSUMER, *at, "--topic", "rolled", "--max-messages", "2"),
            *(
                "--from-beginning",
                "--group",
                "new",
                "--command-property",
                "group.protocol=consumer",
            ),
        )
        described = kafka.run(GROUPS, *at, "--describe", "--group", "new", "--state")
        assert "Empty" in described, described
        offsets = kafka.run(GROUPS, *at, "--describe", "--group", "new", "--offsets")
        assert [line.split()[3] for line in offsets.splitlines() if " rolled " in line] != []
        listed = kafka.run(GROUPS, *at, "--list", "--type", "consumer")
        assert listed.split()[-2:] == ["new", "Consumer"]
    (log,) = (tmp_path / "node").rglob("__consumer_offsets-0/00000000000000000000.log")
    copied = tmp_path / "__consumer_offsets-0" / log.name
    copied.parent.mkdir()
    shutil.copy(log, copied)
    dumped = kafka.dump("--offsets-decoder", "--files", str(copied))
    kinds = set(re.findall(r'key: {"type":"(\d+)"', dumped))
    assert {"1", "3", "5", "6", "7", "8"} <= kinds, dumped
    assert "Could not read" not in dumped, dumped
