"""Whole nodes in this process, over real sockets and files, seen through wire and handle."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.metadata.features import supported_features
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import (
    Node,
    ShutdownTimeout,
    StartFailed,
    start_node,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import DirectoryInUse
from ottla.storage.directory.meta_properties import NotFormatted

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def settings(root: Path, *extra: str, node_id: int = 1, roles: str = "broker,controller") -> Loaded:
    listeners = []
    if "broker" in roles:
        listeners.append("PLAINTEXT://127.0.0.1:0")
    if "controller" in roles:
        listeners.append("CONTROLLER://127.0.0.1:0")
    return load(
        f"process.roles={roles}\nnode.id={node_id}\nlisteners={','.join(listeners)}\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={root / 'data'}\n"
        "controller.quorum.election.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n"
        "broker.session.timeout.ms=3000\n" + "\n".join(extra)
    )


def format_one(loaded: Loaded, quorum: Quorum | None = None) -> None:
    options = FormatOptions(cluster_id=CLUSTER, quorum=quorum or Quorum(is_standalone=True))
    random = SystemRandom()
    plan = plan_format(loaded, options, random)
    format_node(RealDisk(), random, SystemClock().now(), plan)


@asynccontextmanager
async def running(loaded: Loaded) -> AsyncIterator[Node]:
    node = await start_node(loaded, start_s_max=60)
    try:
        yield node
    finally:
        await node.shutdown()


@asynccontextmanager
async def client(address: Address | None) -> AsyncIterator[Connection]:
    assert address is not None
    connection = await Connection.open(TcpNetwork(), address, client_id="test")
    try:
        yield connection
    finally:
        await connection.close()


def asynchronous(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


async def create_topic(connection: Connection, name: str) -> ErrorCode:
    request = CreateTopicsRequest([CreatableTopic(name, 3, 1)], 10_000)
    response: Any = await connection.send(request, timeout_ms=10_000)
    return ErrorCode(response.topics[0].error_code)


async def once_not_busy(connection: Connection, request: Message) -> ErrorCode:
    """Ask for a voter change until no other is under way.

    Who joins reads of it in the log before the leader knows it to be committed; till then the
    leader answers as Kafka's does, REQUEST_TIMED_OUT.
    """
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            response: Any = await connection.send(request, timeout_ms=10_000)
            if response.error_code != ErrorCode.REQUEST_TIMED_OUT:
                return ErrorCode(response.error_code)


async def wait_unfenced(node: Node) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await node.wait_image(lambda image: image.cluster.is_unfenced(node.node_id))


@asynchronous
async def test_combined_node_serves_admin_clients_and_keeps_topics_over_restart(
    tmp_path: Path,
) -> None:
    loaded = settings(tmp_path)
    format_one(loaded)
    async with running(loaded) as node:
        await wait_unfenced(node)
        async with client(node.listen_addr) as connection:
            assert await create_topic(connection, "orders") is ErrorCode.NONE
            # An acknowledged change is visible at once, everywhere on this node.
            metadata: Any = await connection.send(
                MetadataRequest([MetadataRequestTopic(name="orders")]), timeout_ms=5000
            )
            assert [p.leader_id for p in metadata.topics[0].partitions] == [1, 1, 1]
            assert metadata.cluster_id == CLUSTER
            assert await create_topic(connection, "orders") is ErrorCode.TOPIC_ALREADY_EXISTS
            described: Any = await connection.send(DescribeClusterRequest(), timeout_ms=5000)
            assert [broker.broker_id for broker in described.brokers] == [1]
            assert described.brokers[0].port == node.listen_addr.port  # type: ignore[union-attr]
            configs: Any = await connection.send(
                DescribeConfigsRequest([DescribeConfigsResource(2, "orders", None)]),
                timeout_ms=5000,
            )
            assert "retention.ms" in [entry.name for entry in configs.results[0].configs]
        assert node.has_partition("orders", 2) and not node.has_partition("orders", 3)
        assert node.is_active_controller and node.describe_quorum().leader_id == 1
        assert list(node.image.cluster.brokers) == [1]
        port = node.listen_addr.port if node.listen_addr else 0
        assert node.image.cluster.brokers[NodeId(1)].listeners["PLAINTEXT"].port == port != 0
    async with running(loaded) as again:
        assert again.image.topics.named("orders") is not None


@asynchronous
async def test_broker_without_controller_role_follows_and_forwards(tmp_path: Path) -> None:
    first = settings(tmp_path / "c", roles="controller")
    format_one(first)
    async with running(first) as controller:
        at = controller.controller_addr
        second = settings(
            tmp_path / "b",
            f"controller.quorum.bootstrap.servers={at}",
            node_id=2,
            roles="broker",
        )
        format_one(second, Quorum())
        assert controller.listen_addr is None and not controller.image.cluster.brokers
        async with running(second) as broker:
            assert broker.controller_addr is None
            await wait_unfenced(broker)
            async with client(broker.listen_addr) as connection:
                assert await create_topic(connection, "t") is ErrorCode.NONE
                # Answered only when this broker's own image has it? Not promised: it follows.
                await broker.wait_image(lambda image: image.topics.named("t") is not None)
            assert broker.describe_quorum().leader_id == 1 and not broker.is_active_controller
            assert not broker.describe_quorum().is_voter
        # No controlled shutdown was requested: the controller notices the missing heartbeats.
        async with asyncio.timeout(SECONDS_MAX):
            await controller.wait_image(lambda image: not image.cluster.is_unfenced(2))


@asynchronous
async def test_controlled_shutdown_is_granted_and_fences_the_broker(
    tmp_path: Path,
) -> None:
    first = settings(tmp_path / "c", roles="controller")
    format_one(first)
    async with running(first) as controller:
        servers = f"controller.quorum.bootstrap.servers={controller.controller_addr}"
        second = settings(tmp_path / "b", servers, node_id=2, roles="broker")
        format_one(second, Quorum())
        broker = await start_node(second, start_s_max=60)
        await wait_unfenced(broker)
        assert not broker.should_shut_down
        await broker.controlled_shutdown(10)
        assert broker.should_shut_down
        assert not controller.image.cluster.is_unfenced(2), "fenced before it was gone"
        await broker.shutdown()


@asynchronous
async def test_controlled_shutdown_without_answer_leaves_the_broker_running(tmp_path: Path) -> None:
    first = settings(tmp_path / "c", roles="controller")
    format_one(first)
    controller = await start_node(first, start_s_max=60)
    servers = f"controller.quorum.bootstrap.servers={controller.controller_addr}"
    second = settings(tmp_path / "b", servers, node_id=2, roles="broker")
    format_one(second, Quorum())
    async with running(second) as broker:
        await wait_unfenced(broker)
        await controller.shutdown()
        with pytest.raises(ShutdownTimeout):
            await broker.controlled_shutdown(0.3)
        async with client(broker.listen_addr) as connection:
            assert ApiKey.METADATA in connection.versions


@asynchronous
async def test_controller_auto_joins_until_it_is_removed(
    tmp_path: Path,
) -> None:
    first = settings(tmp_path / "a", roles="controller")
    format_one(first)
    alone = await start_node(first, start_s_max=60)
    servers = f"controller.quorum.bootstrap.servers={alone.controller_addr}"
    join = "controller.quorum.auto.join.enable=true"
    second = settings(tmp_path / "b", servers, join, node_id=2, roles="controller")
    format_one(second, Quorum(has_no_initial_controllers=True))
    async with running(second) as joiner:
        async with asyncio.timeout(SECONDS_MAX):
            await joiner.wait_image(lambda image: joiner.describe_quorum().is_voter)
        assert joiner.describe_quorum().voters.ids == (1, 2)
        assert alone.is_active_controller and not joiner.is_active_controller
        # Removed by an operator: it learns that from the log, and does not join again by itself.
        joined = next(v for v in joiner.describe_quorum().voters if v.key.node_id == 2)
        request = RemoveRaftVoterRequest(CLUSTER, 2, joined.key.directory_id)
        async with client(alone.controller_addr) as connection:
            assert await once_not_busy(connection, request) is ErrorCode.NONE
        async with asyncio.timeout(SECONDS_MAX):
            await joiner.wait_image(lambda image: not joiner.describe_quorum().is_voter)
        await alone.shutdown()


async def register(connection: Connection, **changes: Any) -> Any:
    features = [Feature(name, r.min, r.max) for name, r in supported_features().items()]
    fields = {
        "broker_id": 7,
        "cluster_id": CLUSTER,
        "incarnation_id": SystemRandom().uuid(),
        "listeners": [Listener("PLAINTEXT", "h", 9092, 0)],
        "features": features,
        "rack": None,
        "log_dirs": [SystemRandom().uuid()],
    }
    request = BrokerRegistrationRequest(**{**fields, **changes})
    return await connection.send(request, timeout_ms=5000)


async def beat(connection: Connection, epoch: int, **changes: Any) -> Any:
    fields = {"broker_id": 7, "broker_epoch": epoch, "current_metadata_offset": 1 << 40}
    request = BrokerHeartbeatRequest(**{**fields, **changes})
    return await connection.send(request, timeout_ms=5000)


@asynchronous
async def test_controller_distinguishes_brokers_with_the_same_id(tmp_path: Path) -> None:
    loaded = settings(tmp_path, "broker.session.timeout.ms=60000", roles="controller")
    format_one(loaded)
    async with running(loaded) as node, client(node.controller_addr) as connection:
        async with asyncio.timeout(SECONDS_MAX):
            await node.wait_image(lambda image: 1 in image.cluster.controllers)
        foreign = await register(connection, cluster_id="another")
        assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        first = await register(connection)
        assert first.error_code == ErrorCode.NONE
        reply = await beat(connection, first.broker_epoch)
        assert (reply.is_caught_up, reply.is_fenced) == (True, False)
        assert node.image.cluster.is_unfenced(7), "answered after it was applied"
        second = await register(connection)
        assert second.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        stale = await beat(connection, first.broker_epoch - 1)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        gone = await beat(connection, first.broker_epoch, want_shut_down=True)
        assert gone.should_shut_down and gone.is_fenced
        third = await register(connection)
        assert third.error_code == ErrorCode.NONE and third.broker_epoch > first.broker_epoch


@asynchronous
async def test_only_served_apis_are_advertised(tmp_path: Path) -> None:
    loaded = settings(tmp_path)
    format_one(loaded)
    async with running(loaded) as node:
        async with client(node.listen_addr) as connection:
            assert ApiKey.VOTE not in connection.versions
            assert ApiKey.ENVELOPE not in connection.versions
        async with client(node.controller_addr) as connection:
            assert {ApiKey.FETCH, ApiKey.VOTE, ApiKey.ENVELOPE} <= set(connection.versions)


@asynchronous
async def test_directory_in_use_or_unformatted_is_refused(tmp_path: Path) -> None:
    loaded = settings(tmp_path)
    with pytest.raises(NotFormatted, match="there is no such directory"):
        await start_node(loaded)
    (tmp_path / "data").mkdir()
    with pytest.raises(NotFormatted, match=r"there is no meta\.properties"):
        await start_node(loaded)
    format_one(loaded)
    async with running(loaded):
        with pytest.raises(DirectoryInUse):
            await start_node(loaded)


@asynchronous
async def test_broker_without_a_quorum_fails_to_start_with_a_reason(tmp_path: Path) -> None:
    loaded = settings(tmp_path, node_id=2, roles="broker")
    format_one(loaded, Quorum())
    with pytest.raises(StartFailed, match="no leader elected"):
        await start_node(loaded, start_s_max=0.5)
    # Nothing is held: another attempt fails for the same reason, not for a lock or a port.
    with pytest.raises(StartFailed, match="no leader elected"):
        await start_node(loaded, start_s_max=0.3)


@asynchronous
async def test_next_start_loads_the_requested_snapshot(
    tmp_path: Path,
) -> None:
    loaded = settings(tmp_path)
    format_one(loaded)
    async with running(loaded) as node:
        await wait_unfenced(node)
        async with client(node.listen_addr) as connection:
            assert await create_topic(connection, "t") is ErrorCode.NONE
        node.request_snapshot()
        async with asyncio.timeout(SECONDS_MAX):
            await node.wait_image(lambda image: node.snapshot_written is not None)
    found = sorted((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    assert len(found) == 2
    async with running(loaded) as again:
        assert again.image.topics.named("t") is not None


def controller_at(host: str, tmp_path: Path, *extra: str) -> Loaded:
    return load(
        f"process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://{host}:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
        f"advertised.listeners=CONTROLLER://127.0.0.1:9093\nlog.dirs={tmp_path / 'data'}\n"
        + "\n".join(extra)
    )


@pytest.mark.parametrize("host", ["", "192.0.2.1"])
def test_open_controller_listener_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.allow\.insecure\.controller\.listener"):
        asyncio.run(start_node(controller_at(host, tmp_path)))
    assert not (tmp_path / "data").exists()


def test_open_controller_listener_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = controller_at("", tmp_path, "ottla.allow.insecure.controller.listener=true")
    format_one(loaded)

    async def main() -> None:
        async with running(loaded):
            pass

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "ANYBODY WHO REACHES IT" in caplog.text
