"""Three replicas in one process over real sockets, disks and clocks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from raft_bench import CLUSTER, Listener, directory, record
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.protocol import api_keys
from ottla.protocol.types import Millis, NodeId
from ottla.raft.core.effects import Role
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voters import ALL_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.raft.driver import RaftDriver, RaftParts
from ottla.raft.metadata_log import DIRECTORY_NAME, MetadataLog
from ottla.raft.peers import WirePeers
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.snapshots import write_initial_snapshot
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.group_commit import GroupCommit
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.supervisor import supervise
from ottla.server.listener import ListenerSpec, Server, ServerSettings

pytestmark = pytest.mark.slow


@dataclass
class Node:
    voter: Voter
    path: str
    voters: VoterSet
    listener: Listener = field(default_factory=Listener)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    driver: RaftDriver | None = None

    async def run(self) -> None:
        disk, clock = RealDisk(), SystemClock()
        write_initial_snapshot(disk, f"{self.path}/{DIRECTORY_NAME}", self.voters, Millis(1))
        log = MetadataLog.open(disk, self.path, clock)
        key = self.voter.key
        settings = RaftSettings(
            node_id=key.node_id,
            directory_id=key.directory_id,
            cluster_id=CLUSTER,
            endpoints=self.voter.endpoints,
            election_timeout_ms=300,
            fetch_timeout_ms=600,
            request_timeout_ms=500,
        )
        committer = GroupCommit(self.path, lambda error: None)
        self.driver = RaftDriver(
            RaftParts(
                settings=settings,
                log=log,
                state=QuorumStateFile(disk, log.directory, key),
                committer=committer,
                peers=WirePeers(TcpNetwork(), f"node-{key.node_id}", settings.request_timeout_ms),
                clock=clock,
                random=SystemRandom(),
                listener=self.listener,
            )
        )
        at = self.voter.endpoints[0]
        routes = Routes(
            api_keys.Listener.CONTROLLER,
            bind_routes(
                api_keys.Listener.CONTROLLER,
                handlers_of(raft=RaftHandlers(self.driver, "CONTROLLER")),
            ),
        )
        spec = ListenerSpec("CONTROLLER", Address(at.host, at.port), routes)
        server = Server(TcpNetwork(), clock, [spec], settings=ServerSettings(drain_ms=1000))
        try:
            await supervise([self.driver, server], self.stop)
        finally:
            self.driver = None
            await committer.close()
            log.close()


def leader_of(nodes: list[Node]) -> Node | None:
    found = [n for n in nodes if n.driver and n.driver.describe().role is Role.LEADER]
    return found[0] if found else None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - nobody tells of these
            await asyncio.sleep(0.01)


async def play(tmp_path: Path) -> None:
    voters = VoterSet(
        tuple(
            Voter(
                ReplicaKey(NodeId(i + 1), directory(i + 1)),
                (Endpoint("CONTROLLER", "127.0.0.1", port),),
                ALL_KRAFT_VERSIONS,
            )
            for i, port in enumerate(free_ports(3))
        )
    )
    nodes = [Node(v, str(tmp_path / str(v.key.node_id)), voters) for v in voters]
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(node.run())
        await until(lambda: leader_of(nodes) is not None)
        first = leader_of(nodes)
        assert first is not None
        assert first.driver is not None
        await first.driver.propose([record("a")], first.driver.describe().epoch)
        await until(lambda: all(node.listener.values == ["a"] for node in nodes))
        first.stop.set()
        left = [node for node in nodes if node is not first]
        await until(lambda: leader_of(left) is not None and first.driver is None)
        second = leader_of(left)
        assert second is not None
        assert second.driver is not None
        await second.driver.propose([record("b")], second.driver.describe().epoch)
        await until(lambda: all(node.listener.values == ["a", "b"] for node in left))
        for node in left:
            node.stop.set()


def test_quorum_over_loopback_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    asyncio.run(play(tmp_path))
