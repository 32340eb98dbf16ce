"""The API of an embedded node: passed sockets, metrics, limits, automatic topic creation."""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from one_node import CLUSTER, Line, OneNode, format_one, one_node, settings
from prometheus_client.parser import text_string_to_metric_families
from tests.patience import SECONDS_MAX
from tests.seeds import seeds

from ottla import Node
from ottla.client.connection import Connection
from ottla.config.problems import ConfigError
from ottla.node.handle import StartFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, Offset
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

METRICS = "ottla.metrics.listener=127.0.0.1:0"
# All start on one event loop: 50 took more than the 120 s of a start on a busy machine.
NODES = len(seeds(20, deep=50))


async def ask(address: Address | None, request: Message, version: int | None = None) -> Any:
    assert address is not None
    connection = await Connection.open(TcpNetwork(), address, client_id="test")
    try:
        return await connection.send(request, version=version, timeout_ms=10_000)
    finally:
        await connection.close()


async def topic_code(node: Node, name: str, *, create: bool = True) -> ErrorCode:
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    response = await ask(node.listen_addr, request)
    return ErrorCode(response.topics[0].error_code)


def get(node: Node, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://{node.metrics_addr}{path}", timeout=SECONDS_MAX
        ) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(page: str) -> dict[str, float]:
    """Every sample of a page by its name and labels, written as in a query."""
    return {
        sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


# -- start -----------------------------------------------------------------------


def bound(host: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.bind((host, 0))
    return sock


def test_many_nodes_start_at_once_with_sockets_handed_over(tmp_path: Path) -> None:
    async def start(number: int) -> Node:
        client, controller = bound(), bound()
        listeners = (
            f"PLAINTEXT://127.0.0.1:{client.getsockname()[1]},"
            f"CONTROLLER://127.0.0.1:{controller.getsockname()[1]}"
        )
        loaded = settings(tmp_path / str(number), listeners=listeners)
        format_one(loaded)
        node = await Node.start(loaded, client_listener=client, controller_listener=controller)
        assert node.listen_addr == Address(*client.getsockname())
        assert node.controller_addr == Address(*controller.getsockname())
        return node

    async def main() -> None:
        nodes = await asyncio.gather(*(start(number) for number in range(NODES)))
        ports = {node.listen_addr.port for node in nodes if node.listen_addr is not None}
        assert len(ports) == NODES
        await asyncio.gather(*(node.shutdown() for node in nodes))

    asyncio.run(main())


def test_socket_without_a_listener_is_rejected(tmp_path: Path) -> None:
    loaded = settings(tmp_path)
    with bound() as stray, pytest.raises(StartFailed, match="no controller listener is at 127"):
        asyncio.run(Node.start(loaded, controller_listener=stray))


def test_several_listeners_of_both_families_and_an_advertised_port_of_0(tmp_path: Path) -> None:
    loaded = settings(
        tmp_path,
        "advertised.listeners=PLAINTEXT://node.example:0,OTHER://[::1]:0",
        listeners="PLAINTEXT://127.0.0.1:0,OTHER://[::1]:0,CONTROLLER://127.0.0.1:0",
    )
    with one_node(loaded) as running:
        reply = running.node.image.cluster.brokers[running.node.node_id].listeners
        assert reply["PLAINTEXT"].host == "node.example"
        assert reply["PLAINTEXT"].port == running.address.port != 0
        other = Address("::1", reply["OTHER"].port)
        response = running.call(ask(other, MetadataRequest([])))
        assert [(b.host, b.port) for b in response.brokers] == [("::1", other.port)]
        assert response.cluster_id == CLUSTER


def test_settings_may_be_a_mapping_and_invalid_ones_open_nothing(tmp_path: Path) -> None:
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(tmp_path / "data"),
        "max.connections.per.ip.overrides": "127.0.0.1",
    }
    with pytest.raises(ConfigError, match="host:count"):
        asyncio.run(Node.start(given))
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, ottla; print(sorted(m for m in sys.modules if 'ottla' in m or m == 'asyncio'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['ottla']"


def test_metrics_port_in_use_fails_the_start(tmp_path: Path) -> None:
    with bound() as taken:
        taken.listen()
        loaded = settings(tmp_path, f"ottla.metrics.listener=127.0.0.1:{taken.getsockname()[1]}")
        format_one(loaded)
        with pytest.raises(OSError, match="cannot listen on"):
            asyncio.run(Node.start(loaded))


# -- what it tells of itself -----------------------------------------------------


def test_metrics_contain_what_dashboards_query(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, METRICS)) as running:
        node = running.node
        request = CreateTopicsRequest([CreatableTopic("orders", 3, 1)], 10_000)
        running.call(ask(node.listen_addr, request))
        found = samples(get(node, "/metrics")[1])

        def value(name: str, **labels: str) -> float:
            return found[name + json.dumps(labels, sort_keys=True)]

        server, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
        assert value(f"{server}leadercount") == value(f"{server}partitioncount") == 3
        assert value(f"{server}underreplicatedpartitions") == 0
        assert value(f"{server}offlinereplicacount") == 0
        assert value(f"{controller}activecontrollercount") == 1
        assert value(f"{controller}globaltopiccount") == 1
        assert value(f"{controller}globalpartitioncount") == 3
        assert value(f"{controller}offlinepartitionscount") == 0
        assert value(f"{controller}activebrokercount") == 1
        raft = "kafka_server_raftmetrics_"
        assert value(f"{raft}current_state", current_state="leader") == 1
        assert value(f"{raft}current_leader") == 1 and value(f"{raft}high_watermark") > 0
        assert value("kafka_server_kafkaserver_brokerstate") == 3
        assert value("kafka_log_log_size", topic="orders", partition="2") == 0
        assert value("kafka_cluster_partition_replicascount", topic="orders", partition="0") == 1
        requests = "kafka_network_requestmetrics_requests_total"
        assert value(requests, request="CreateTopics") >= 1
        assert value("kafka_network_requestmetrics_totaltimems_count", request="CreateTopics") >= 1
        connections = "kafka_server_socket_server_metrics_connection_count"
        assert value(connections, listener="PLAINTEXT", networkProcessor="0") == 0
        assert value("process_resident_memory_bytes") > 1 << 20
        assert value("ottla_event_loop_stalls_total") >= 0


def test_bytes_in_and_out_are_counted_by_topic(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, METRICS)) as running:
        node = running.node
        request = CreateTopicsRequest([CreatableTopic("orders", 1, 1)], 10_000)
        running.call(ask(node.listen_addr, request))
        when = SystemClock().now()
        records = [Record(Offset(n), when, None, b"x" * 100) for n in range(2)]
        batch = bytes(build_batch(records))
        part = PartitionProduceData(0, batch)
        produce = ProduceRequest(acks=1, topic_data=[TopicProduceData("orders", ZERO_UUID, [part])])
        running.call(ask(node.listen_addr, produce, 12))
        wanted = FetchTopic("orders", ZERO_UUID, [FetchPartition(0, partition_max_bytes=1 << 20)])
        running.call(ask(node.listen_addr, FetchRequest(topics=[wanted]), 12))
        found = samples(get(node, "/metrics")[1])
        name, label = "kafka_server_brokertopicmetrics_", '{"topic": "orders"}'
        assert found[f"{name}messagesin_total{label}"] == 2
        assert found[f"{name}bytesin_total{label}"] == len(batch)
        assert found[f"{name}bytesout_total{label}"] == len(batch)
        assert found[f"{name}bytesin_total{{}}"] == len(batch)
        assert found['kafka_log_log_size{"partition": "0", "topic": "orders"}'] == len(batch)
        assert node.local_log_end_offset("orders", 0) == 2


def test_health_and_readiness(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, METRICS)) as running:
        assert get(running.node, "/healthz") == (200, "ok\n")
        assert get(running.node, "/readyz") == (200, "ready\n")
        assert get(running.node, "/")[0] == 404


def test_unset_metrics_address_and_unknown_log_are_none(tmp_path: Path) -> None:
    with one_node(settings(tmp_path)) as running:
        node = running.node
        assert node.metrics_addr is None
        assert node.local_log_end_offset("nothing", 0) is None


def test_controlled_shutdown_is_visible_to_late_waiters(tmp_path: Path) -> None:
    with one_node(settings(tmp_path)) as running:
        node = running.node
        assert not node.should_shut_down
        running.call(node.controlled_shutdown(20))
        assert node.should_shut_down
        running.call(node.wait_should_shut_down())


# -- topics made by asking -------------------------------------------------------


def test_metadata_request_creates_a_topic(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, "num.partitions=4")) as running:
        node = running.node
        assert running.call(topic_code(node, "quiet", create=False)) is UNKNOWN
        assert running.call(topic_code(node, "new")) is UNKNOWN
        running.call(_has_topic(node, "new"))
        assert running.call(topic_code(node, "new")) is ErrorCode.NONE
        assert len(node.image.topics.named("new").partitions) == 4  # type: ignore[union-attr]
        assert node.image.topics.named("quiet") is None


def test_metadata_request_creates_no_topic_if_disabled(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, "auto.create.topics.enable=false")) as running:
        node = running.node
        assert running.call(topic_code(node, "new")) is UNKNOWN
        running.call(ask(node.listen_addr, CreateTopicsRequest([CreatableTopic("last", 1, 1)])))
        running.call(_has_topic(node, "last"))
        assert node.image.topics.named("new") is None


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _has_topic(node: Node, name: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await node.wait_image(lambda image: image.topics.named(name) is not None)


# -- limits ----------------------------------------------------------------------


def refused(running: OneNode, count: int) -> int:
    """Open so many connections at once; return how many of them were hung up on."""
    lines = [Line(running.address) for _ in range(count)]
    ended = 0
    for line in lines:
        line.sock.settimeout(0.1)
        try:
            ended += line.sock.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            ended += 1
    for line in lines:
        line.sock.close()
    return ended


def test_limits_are_as_configured_and_change_at_run_time(tmp_path: Path) -> None:
    loaded = settings(tmp_path, "max.connections.per.ip=6")
    with one_node(loaded) as running:
        node = running.node
        assert refused(running, 8) >= 2
        change = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(4, "", [AlterableConfig("max.connections.per.ip", 0, "30")])]
        )
        reply = running.call(ask(node.listen_addr, change))
        assert [each.error_code for each in reply.responses] == [0]
        assert refused(running, 8) == 0


def test_connection_quota_of_an_address_slows_its_connections(tmp_path: Path) -> None:
    with one_node(settings(tmp_path, METRICS)) as running:
        node = running.node
        quota = AlterClientQuotasRequest(
            [
                RequestEntryData(
                    [RequestEntityData("ip", "127.0.0.1")],
                    [OpData("connection_creation_rate", 2.0)],
                )
            ]
        )
        reply = running.call(ask(node.listen_addr, quota))
        assert [each.error_code for each in reply.entries] == [0]
        began = time.monotonic()
        for _ in range(4):
            running.call(ask(node.listen_addr, MetadataRequest([])))
        took = time.monotonic() - began
        assert took > 0.9, "two at once, then two a second"
