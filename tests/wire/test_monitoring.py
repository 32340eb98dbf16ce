"""The alert rules and the dashboard of docs/monitoring, against the metrics of a node."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from one_node import OneNode, one_node, settings
from tests.patience import SECONDS_MAX

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"\b(?:kafka|ottla|process)_[a-z0-9_]+")


def rules() -> list[dict[str, str]]:
    document = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[str]:
    document = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


# What Strimzi's dashboards for Kafka and KRaft and kafka-exporter's query of a broker.
DASHBOARDS = """
kafka_server_replicamanager_leadercount kafka_controller_kafkacontroller_activecontrollercount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_server_replicamanager_partitioncount kafka_server_replicamanager_underreplicatedpartitions
kafka_cluster_partition_atminisr kafka_cluster_partition_underminisr
kafka_cluster_partition_replicascount kafka_controller_kafkacontroller_offlinepartitionscount
process_open_fds kafka_server_brokertopicmetrics_bytesin_total
kafka_server_brokertopicmetrics_bytesout_total kafka_server_brokertopicmetrics_messagesin_total
kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_failedfetchrequests_total
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_kafkaserver_linux_disk_write_bytes kafka_server_kafkaserver_linux_disk_read_bytes
kafka_server_socket_server_metrics_connection_count kafka_log_log_size
kafka_server_raftmetrics_append_records_rate kafka_server_raftmetrics_fetch_records_rate
kafka_server_raftmetrics_commit_latency_avg kafka_server_raftmetrics_current_state
kafka_server_raftmetrics_current_leader kafka_server_raftmetrics_current_vote
kafka_server_raftmetrics_current_epoch kafka_server_raftmetrics_high_watermark
kafka_server_raftmetrics_log_end_offset kafka_server_raftchannelmetrics_incoming_byte_total
kafka_server_raftchannelmetrics_outgoing_byte_total kafka_server_raftchannelmetrics_request_total
kafka_server_raftchannelmetrics_response_total kafka_topic_partitions kafka_topic_partition_replicas
kafka_topic_partition_in_sync_replica kafka_topic_partition_under_replicated_partition
kafka_topic_partition_leader_is_preferred kafka_topic_partition_current_offset
kafka_topic_partition_oldest_offset kafka_consumergroup_current_offset kafka_consumergroup_lag
kafka_broker_info
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    loaded = settings(
        tmp_path_factory.mktemp("node"),
        "ottla.metrics.listener=127.0.0.1:0",
        "ottla.consumer.lag.interval.ms=50",
        "offsets.topic.replication.factor=1",
    )
    with one_node(loaded) as running:
        yield running


def scrape(node: OneNode) -> set[str]:
    """Return the names of all metrics."""
    at = node.node.metrics_addr
    assert at is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{at.port}/metrics", timeout=SECONDS_MAX
    ) as reply:
        lines = reply.read().decode().splitlines()
    return {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}


def test_every_metric_of_rules_and_dashboards_exists(node: OneNode) -> None:
    at = {"bootstrap.servers": str(node.address)}
    producer = Producer(at)
    producer.produce("t", b"x", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(at | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.poll(30) is not None
    consumer.committed([TopicPartition("t", 0)], 30)  # waits for the coordinator
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    wanted = {
        name
        for text in [*(rule["expr"] for rule in rules()), *panels(), DASHBOARDS]
        for name in NAME.findall(text)
    }
    # Only SASL listeners count logins, and only nodes with a collector count exports.
    wanted.discard("kafka_server_socket_server_metrics_failed_authentication_total")
    wanted.discard("ottla_otlp_dropped_total")
    wanted.discard("ottla_tiered_storage_damaged_objects")  # of nodes with tiered storage
    assert len(wanted) > 40
    deadline = time.monotonic() + SECONDS_MAX
    while missing := wanted - scrape(node):
        assert time.monotonic() < deadline, missing
    consumer.close()


def test_every_alert_has_a_runbook_entry_and_no_entry_is_left_over() -> None:
    page = (DOCS / "monitoring.md").read_text()
    assert re.findall(r"^### (\w+)$", page, re.M) == [rule["alert"] for rule in rules()]
