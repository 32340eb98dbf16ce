"""Auto-join on simulated machines: which nodes ask to join, and which stay removed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.protocol.api_keys import Listener
from ottla.protocol.errors import ErrorCode
from ottla.raft.auto_join import AutoJoin, AutoJoinedFile, JoinAction, decide_join
from ottla.raft.core.effects import Role
from ottla.raft.core.messages import RemoveVoterRequest, Reply, VoterChangeReply
from ottla.raft.core.voters import VoterSet
from ottla.raft.metadata_log import DIRECTORY_NAME
from ottla.raft.snapshots import write_initial_snapshot
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import supervise
from ottla.server.listener import ListenerSpec, Server
from simulation.quorum_node import (
    CLUSTER,
    CONTROLLER,
    FEATURES,
    LOG_DIR,
    PORT,
    History,
    Machine,
    directory,
    endpoint,
    make_driver,
)
from simulation.quorum_watch import QuorumWatch
from simulation.simulation import Main, Ports, Simulation

METADATA_DIR = f"{LOG_DIR}/{DIRECTORY_NAME}"


@pytest.mark.parametrize(
    ("is_voter", "was_voter", "what"),
    [
        (False, False, JoinAction.REQUEST),
        (True, False, JoinAction.RECORD),
        (True, True, JoinAction.WAIT),
        (False, True, JoinAction.REMOVED),
    ],
)
def test_auto_join_action_by_quorum_state(
    is_voter: bool, was_voter: bool, what: JoinAction
) -> None:
    assert decide_join(is_voter=is_voter, was_voter=was_voter) is what


class Cluster:
    """Node 0 is the only voter; node 1 joins by itself, after a bootstrap server that is down."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.watch = QuorumWatch()
        servers = (endpoint(0),)
        self.machines = [Machine(i, directory(i + 1), VoterSet(), servers) for i in range(2)]
        first, clock = VoterSet((self.machines[0].voter,)), self.simulation.host("n0").clock
        write_initial_snapshot(self.simulation.host("n0").disk, METADATA_DIR, first, clock.now())

    def main(self, machine: Machine, servers: tuple[Address, ...]) -> Main:
        async def run(ports: Ports) -> None:
            driver = make_driver(ports, machine, History(machine, self.watch))
            machine.driver = driver
            routes = Routes(
                Listener.CONTROLLER,
                bind_routes(
                    Listener.CONTROLLER, handlers_of(raft=RaftHandlers(driver, CONTROLLER))
                ),
            )
            spec = ListenerSpec(
                CONTROLLER, Address(machine.name, PORT), routes, features=lambda: FEATURES
            )
            mark = AutoJoinedFile(ports.disk, METADATA_DIR, machine.settings())
            join = AutoJoin(machine.settings(), driver, mark, ports.network, servers)
            services = [driver, Server(ports.network, ports.clock, [spec]), join]
            await supervise(services if servers else services[:2], asyncio.Event())

        return run

    def start(self) -> None:
        self.simulation.host("n0").start(self.main(self.machines[0], ()))
        servers = (Address("nobody", PORT), Address("n0", PORT))
        self.simulation.host("n1").start(self.main(self.machines[1], servers))

    @property
    def joiner(self) -> Machine:
        return self.machines[1]

    def is_joined(self) -> bool:
        drivers = [machine.driver for machine in self.machines]
        return all(
            driver is not None
            and (voters := driver.committed_voters()) is not None
            and voters.has(self.joiner.key)
            for driver in drivers
        )

    async def remove(self) -> None:
        name, leader = next(
            (m.name, m.driver)
            for m in self.machines
            if m.driver is not None and m.driver.describe().role is Role.LEADER
        )
        removal = RemoveVoterRequest(CLUSTER, self.joiner.key)
        asked: list[asyncio.Task[Reply]] = []
        self.simulation.host(name).call_inside(
            lambda: asked.append(asyncio.ensure_future(leader.request(removal)))
        )
        await wait_until(lambda: bool(asked) and asked[0].done())
        reply = asked[0].result()
        assert isinstance(reply, VoterChangeReply)
        assert reply.error is ErrorCode.NONE

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def director() -> None:
            self.start()
            await story()

        self.simulation.run(director)


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it never came")


def test_node_joins_and_records_it() -> None:
    cluster = Cluster()

    async def story() -> None:
        await wait_until(cluster.is_joined)
        await asyncio.sleep(1)
        disk = cluster.simulation.host("n1").disk
        assert disk.exists(f"{METADATA_DIR}/auto-joined")
        assert not cluster.simulation.host("n0").disk.exists(f"{METADATA_DIR}/auto-joined")

    cluster.play(story)


@pytest.mark.parametrize("is_down", [False, True])
def test_removed_node_does_not_rejoin_until_allowed(is_down: bool) -> None:
    cluster = Cluster()

    async def story() -> None:
        await wait_until(cluster.is_joined)
        await asyncio.sleep(1)
        host = cluster.simulation.host("n1")
        await cluster.remove()
        await asyncio.sleep(0.01 if is_down else 10)
        host.crash()
        host.restart()
        await asyncio.sleep(20)
        assert not cluster.is_joined()
        host.call_inside(lambda: host.disk.remove(f"{METADATA_DIR}/auto-joined"))
        await wait_until(cluster.is_joined)

    cluster.play(story)


def test_node_with_another_directory_id_joins_again() -> None:
    """A marker file copied from another directory does not count."""
    cluster = Cluster()
    disk = cluster.simulation.host("n1").disk
    disk.make_dirs(METADATA_DIR)
    other = Machine(1, directory(9), VoterSet(), ())
    AutoJoinedFile(disk, METADATA_DIR, other.settings()).set()

    async def story() -> None:
        await wait_until(cluster.is_joined)

    cluster.play(story)
