"""Three controllers and a broker as real processes; killed leaders lose no acknowledged change."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from processes import (
    CLUSTER_ID,
    ELECTION_MS,
    FETCH_MS,
    SECONDS_MAX,
    NodeProcess,
    broker_settings,
    controller_settings,
    wait_leader,
)
from tests.free_ports import free_ports
from tests.seeds import seeds

from ottla.client.connection import Connection
from ottla.node.directories.format_plan import Quorum
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages import add_raft_voter, remove_raft_voter
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.runtime.network import TcpNetwork

KILLS = len(seeds(8, deep=20))

pytestmark = pytest.mark.slow


class Nodes(list[NodeProcess]):
    def stop(self) -> None:
        for node in self:
            node.kill()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    started = Nodes()
    yield started
    started.stop()


def static_quorum(tmp_path: Path, nodes: Nodes, count: int = 3) -> str:
    ports = free_ports(count)
    voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(ports))
    quorum = f"controller.quorum.voters={voters}\n"
    for node_id in range(1, count + 1):
        root = tmp_path / f"n{node_id}"
        settings = controller_settings(node_id, root, ports, quorum)
        nodes.append(NodeProcess(node_id, root, settings, ports[node_id - 1]))
    return quorum


def set_quota(number: int) -> AlterClientQuotasRequest:
    entry = RequestEntryData(
        [RequestEntityData("user", f"u{number}")], [OpData("request_percentage", number)]
    )
    return AlterClientQuotasRequest([entry])


class Changes:
    """A client that makes one change after the other and remembers what was acknowledged."""

    def __init__(self, broker: NodeProcess) -> None:
        self.broker = broker
        self.acknowledged: list[int] = []
        self.is_stopped = False
        self.more = asyncio.Event()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.acknowledged) < count:
                self.more.clear()
                await self.more.wait()

    async def run(self) -> None:
        number, connection = 0, None
        while not self.is_stopped:
            number += 1
            try:
                connection = connection or await Connection.open(
                    TcpNetwork(), self.broker.address, client_id="changes"
                )
                response = await connection.send(set_quota(number), timeout_ms=5000)
            except (OSError, Fault):
                connection = None
                await asyncio.sleep(0.05)
                continue
            assert isinstance(response, AlterClientQuotasResponse)
            if response.entries[0].error_code == ErrorCode.NONE:
                self.acknowledged.append(number)
                self.more.set()
        if connection is not None:
            await connection.close()


async def quotas(broker: NodeProcess) -> set[int]:
    response = await broker.ask(DescribeClientQuotasRequest())
    assert isinstance(response, DescribeClientQuotasResponse)
    return {int(entry.values[0].value) for entry in response.entries or []}


def test_no_acknowledged_change_is_lost_when_leaders_are_killed(
    tmp_path: Path, nodes: Nodes
) -> None:
    quorum = static_quorum(tmp_path, nodes)
    controllers = list(nodes)
    port = free_ports(1)[0]
    root = tmp_path / "broker"
    broker = NodeProcess(10, root, broker_settings(10, root, port, quorum), port)
    nodes.append(broker)
    for node in nodes:
        node.format()
        node.start()

    async def main() -> list[float]:
        await broker.wait_started()
        changes = Changes(broker)
        took = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(changes.run())
            for _ in range(KILLS):
                leader, _ = await wait_leader(controllers)
                before = len(changes.acknowledged)
                leader.kill()
                began = monotonic()
                await wait_leader(controllers, besides=leader)
                took.append(monotonic() - began)
                leader.start()
                await leader.wait_started()
                await changes.wait_for(before + 3)
            changes.is_stopped = True
        assert len(changes.acknowledged) > KILLS
        assert set(changes.acknowledged) <= await quotas(broker)
        return took

    took = asyncio.run(main())
    # A crash is noticed after the fetch timeout at the latest, and an election follows. One of
    # many may be split, or delayed by a busy machine.
    assert sorted(took)[KILLS // 2] < (FETCH_MS + ELECTION_MS) / 1000, took


def test_voters_are_added_and_removed_at_run_time(tmp_path: Path, nodes: Nodes) -> None:
    ports = free_ports(2)
    quorum = f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[0]}\n"
    for node_id in (1, 2):
        root = tmp_path / f"n{node_id}"
        settings = controller_settings(node_id, root, ports, quorum)
        nodes.append(NodeProcess(node_id, root, settings, ports[node_id - 1]))
    first, second = nodes
    first.format(Quorum(is_standalone=True))
    second.format(Quorum(has_no_initial_controllers=True))

    async def voters() -> set[int]:
        _, reply = await wait_leader([first])
        return {voter.replica_id for voter in reply.current_voters}

    async def add(node: NodeProcess) -> None:
        request = add_raft_voter.AddRaftVoterRequest(
            CLUSTER_ID,
            10_000,
            node.node_id,
            node.directory_id,
            [add_raft_voter.Listener("CONTROLLER", "127.0.0.1", node.port)],
        )
        async with asyncio.timeout(SECONDS_MAX):
            # A replica that lags is rejected until it has caught up.
            while (response := await first.ask(request, 10_000)).error_code:  # type: ignore[attr-defined]
                assert response.error_code in (  # type: ignore[attr-defined]
                    ErrorCode.INVALID_REQUEST,
                    ErrorCode.REQUEST_TIMED_OUT,
                ), response
                await asyncio.sleep(0.1)

    async def remove(node: NodeProcess) -> None:
        request = remove_raft_voter.RemoveRaftVoterRequest(
            CLUSTER_ID, node.node_id, node.directory_id
        )
        response = await first.ask(request, 10_000)
        assert response.error_code == ErrorCode.NONE, response  # type: ignore[attr-defined]

    async def main() -> None:
        first.start()
        second.start()
        await first.wait_started()
        await second.wait_started()
        assert await voters() == {1}
        await add(second)
        assert await voters() == {1, 2}
        await remove(second)
        assert await voters() == {1}
        # Its disk is lost: the same node comes back with another directory id, as another replica.
        second.kill()
        old = second.directory_id
        for path in sorted(second.data.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        second.format(Quorum(has_no_initial_controllers=True))
        assert second.directory_id != old
        second.start()
        await second.wait_started()
        await add(second)
        _, reply = await wait_leader([first])
        assert {v.replica_directory_id for v in reply.current_voters} == {
            first.directory_id,
            second.directory_id,
        }

    asyncio.run(main())
