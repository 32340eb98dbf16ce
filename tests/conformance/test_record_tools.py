"""Apache Kafka's command-line tools for records, against a node of ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Kafka
from ottla.testing import Cluster, run_node

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def node(kafka: Kafka) -> Iterator[Cluster]:
    assert kafka
    with run_node(processes=True) as node:
        yield node


def at(node: Cluster) -> tuple[str, str]:
    return "--bootstrap-server", node.bootstrap


def test_console_tools_write_and_read_and_get_offsets(kafka: Kafka, node: Cluster) -> None:
    kafka.run(TOPICS, *at(node), "--create", "--topic", "orders", "--partitions", "1")
    kafka.run(
        *(CONSOLE_PRODUCER, *at(node), "--topic", "orders"),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin="a:one\nb:two\nc:three\n",
    )
    read = kafka.run(
        *(CONSOLE_CONSUMER, *at(node), "--topic", "orders", "--from-beginning"),
        *("--max-messages", "3", "--formatter-property", "print.key=true"),
    )
    assert read.splitlines() == ["a\tone", "b\ttwo", "c\tthree"]
    output = kafka.run(GET_OFFSETS, *at(node), "--topic", "orders", "--time", "-1")
    assert output.strip() == "orders:0:3"
    assert kafka.run(GET_OFFSETS, *at(node), "--topic", "orders", "--time", "-2").strip() == (
        "orders:0:0"
    )


def test_a_group_of_the_console_is_described(kafka: Kafka, node: Cluster) -> None:
    kafka.run(TOPICS, *at(node), "--create", "--topic", "grouped", "--partitions", "1")
    kafka.run(CONSOLE_PRODUCER, *at(node), "--topic", "grouped", stdin="1\n2\n3\n4\n")
    read = kafka.run(
        *(CONSOLE_CONSUMER, *at(node), "--topic", "grouped", "--from-beginning"),
        *("--max-messages", "4", "--group", "console"),
    )
    assert read.split() == ["1", "2", "3", "4"]
    output = kafka.run(GROUPS, *at(node), "--describe", "--group", "console")
    assert re.search(r"console\s+grouped\s+0\s+4\s+4\s+0", output), output


def test_records_are_deleted(kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    kafka.run(TOPICS, *at(node), "--create", "--topic", "short", "--partitions", "1")
    kafka.run(CONSOLE_PRODUCER, *at(node), "--topic", "short", stdin="1\n2\n3\n")
    wanted = {"partitions": [{"topic": "short", "partition": 0, "offset": 2}], "version": 1}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    output = kafka.run(
        DELETE_RECORDS, *at(node), "--offset-json-file", str(tmp_path / "offsets.json")
    )
    assert "partition: short-0\tlow_watermark: 2" in output
    assert kafka.run(GET_OFFSETS, *at(node), "--topic", "short", "--time", "-2").strip() == (
        "short:0:2"
    )


def test_log_directories_are_described(kafka: Kafka, node: Cluster) -> None:
    kafka.run(TOPICS, *at(node), "--create", "--topic", "placed", "--partitions", "2")
    output = kafka.run(LOG_DIRS, *at(node), "--describe", "--topic-list", "placed")
    found = json.loads(output.splitlines()[-1])
    (directory,) = found["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(node.data(1)) and directory["error"] is None
    assert {each["partition"] for each in directory["partitions"]} == {"placed-0", "placed-1"}


def test_versions_are_listed_as_a_client_sees_them(kafka: Kafka, node: Cluster) -> None:
    output = kafka.run(API_VERSIONS, *at(node))
    assert f"{node.bootstrap} (id: 1 rack: null isFenced: false) -> (" in output
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", output), output
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", output), output
    assert "Metadata(3): 0 to 13 [usable: 13]" in output


def test_the_performance_tools_run(kafka: Kafka, node: Cluster) -> None:
    kafka.run(TOPICS, *at(node), "--create", "--topic", "perf", "--partitions", "1")
    made = kafka.run(
        *(PRODUCER_PERF, "--topic", "perf", "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--bootstrap-server", node.bootstrap),
    )
    assert re.search(r"^5000 records sent", made, re.M), made
    read = kafka.run(
        *(CONSUMER_PERF, *at(node), "--topic", "perf", "--num-records", "5000"),
        *("--reporting-interval", "100000"),
    )
    columns = read.strip().splitlines()[-1].split(", ")
    assert int(columns[4]) >= 5000, read
