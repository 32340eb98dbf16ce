"""All scenarios, as one literal table.

Each takes a fresh simulation and directs it: hosts, faults, and invariants.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from simulation.append_service import AppendClient, AppendService, StoreMaker
from simulation.cluster import cluster
from simulation.cluster_damage import file_damage
from simulation.cluster_directed import joining, minimum
from simulation.cluster_fencing import fencing
from simulation.cluster_rot import bit_rot
from simulation.cluster_unclean import unclean
from simulation.controllers import controllers
from simulation.coordinator_group_steps import rebalance_steps
from simulation.coordinator_pipeline import pipelined
from simulation.coordinator_txn_steps import transaction_steps
from simulation.coordinators import coordinators
from simulation.journal_store import DIRECTORY, JournalStore
from simulation.ledger import InvariantBroken, Ledger
from simulation.log_store import LogStore
from simulation.metadata_damage import metadata_damage
from simulation.platter import Keep
from simulation.quorum import quorum
from simulation.share_steps import share_steps
from simulation.simulation import Host, Main, Ports, Simulation

ROUNDS = 16
CLIENTS = ("ann", "bob")

ServiceMaker = Callable[[Ports, Ledger], AppendService]


def journal_store(ports: Ports) -> JournalStore:
    """Return a journal on a host's ports."""
    return JournalStore(ports.disk, ports.committer(DIRECTORY))


async def journal(simulation: Simulation) -> None:
    """A toy journal behind a server: acknowledged means durable, whatever fails."""
    await run_store_scenario(simulation, serving(journal_store))


async def partition_log(simulation: Simulation) -> None:
    """The partition log behind the same server, with the same faults."""
    await run_store_scenario(simulation, serving(LogStore))


def serving(make: StoreMaker) -> ServiceMaker:
    """Return a service over the stores that ``make`` creates."""
    return lambda ports, ledger: AppendService(ports, ledger, make(ports))


async def run_store_scenario(simulation: Simulation, make: ServiceMaker) -> None:
    """Let clients append to a server while faults are injected, then check what is left.

    The ledger checks after each recovery; the last recovery follows the worst possible power loss.
    A run in which nothing was acknowledged proves nothing, and fails too.
    """
    play = StoreScenario(simulation, Ledger(), make)
    await play.begin()
    for _ in range(ROUNDS):
        await asyncio.sleep(simulation.random.between(0.05, 1.0))
        await play.inject()
        await asyncio.sleep(simulation.random.between(0.05, 1.0))
        await play.repair()
    await play.finish()


@dataclass
class StoreScenario:
    """One server, some clients, and the injected faults."""

    simulation: Simulation
    ledger: Ledger
    make: ServiceMaker
    is_cache_suspect: bool = False  # a sync or write failed since the last power loss

    @property
    def server(self) -> Host:
        """The host that the faults hit."""
        return self.simulation.host("server")

    async def begin(self) -> None:
        """Start everything."""

        async def serve(ports: Ports) -> None:
            await self.make(ports, self.ledger).run()

        self._heal()
        self.server.start(serve)
        for name in CLIENTS:
            self.simulation.host(name).start(self._client(name))
            for link in (("server", name), (name, "server")):
                self.simulation.network.link(*link).split_chance = 0.2
                self.simulation.network.link(*link).spike_chance = 0.02

    def _client(self, name: str) -> Main:
        async def run(ports: Ports) -> None:
            await AppendClient(ports, self.ledger, name).run()

        return run

    async def inject(self) -> None:
        """Inject one random fault."""
        random = self.simulation.random
        if not self.server.is_up:
            return
        faults: list[Callable[[], None]] = [
            self.server.crash,
            self.server.kill,
            self._kill_then_lose_power,
            lambda: self.server.disk.crash_at(1 + random.below(30)),
            lambda: self._fail("sync"),
            lambda: self._fail("write"),
            self._fill,
            self._slow_down,
            self._cut,
            lambda: self.simulation.network.reset("server", CLIENTS[random.below(2)]),
            lambda: self.server.clock.jump(random.below(7_200_000) - 3_600_000),
        ]
        faults[random.below(len(faults))]()

    def _fail(self, kind: Literal["sync", "write"]) -> None:
        self.is_cache_suspect = True
        self.server.disk.fail(kind, after=self.simulation.random.below(6))

    def _fill(self) -> None:
        self.is_cache_suspect = True
        self.server.disk.limit(self.simulation.random.below(20_000))

    def _slow_down(self) -> None:
        self.server.sync_delay_s = lambda: self.simulation.random.between(0.2, 2)

    def _cut(self) -> None:
        random = self.simulation.random
        ends = ["server", CLIENTS[random.below(2)]]
        if random.chance(0.5):
            ends.reverse()
        self.simulation.network.cut(*ends, one_way=random.chance(0.5))

    def _kill_then_lose_power(self) -> None:
        """Kill, then lose power: the next run builds on a page cache that is then lost."""
        self.server.kill()
        self.server.restart(crash_at_step=1 + self.simulation.random.below(600))

    async def repair(self) -> None:
        """Repair what is broken and start the server if it is down.

        A server that ended because of its disk is not simply restarted: what failed to sync may be
        in the page cache only. The machine loses its cache first.
        """
        self._heal()
        if self.server.is_up:
            return
        if self.is_cache_suspect:
            self.server.disk.crash(
                Keep.NOTHING if self.simulation.random.chance(0.5) else Keep.SEEDED
            )
            self.is_cache_suspect = False
        self.server.restart(crash_at_step=self._maybe_step())

    def _heal(self) -> None:
        self.simulation.network.heal()
        self.server.disk.heal()
        self.server.sync_delay_s = lambda: self.simulation.random.between(0.001, 0.02)

    def _maybe_step(self) -> int:
        random = self.simulation.random
        return 1 + random.below(300) if random.chance(0.3) else 0

    async def finish(self) -> None:
        """Run without faults for a while, then cut the power and check the content."""
        self._heal()
        if not self.server.is_up:
            self.server.disk.crash()
            self.server.restart()
        await asyncio.sleep(2)
        if self.server.is_up:
            self.server.crash(Keep.NOTHING)
        recoveries = self.ledger.recoveries
        self.server.restart()
        await asyncio.sleep(1)
        if self.ledger.recoveries == recoveries or not self.ledger.acknowledged:
            raise InvariantBroken("the server did not recover, or never acknowledged anything")


Scenario = Callable[[Simulation], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {
    "journal": journal,
    "partition-log": partition_log,
    "quorum": quorum,
    "metadata-damage": metadata_damage,
    "controllers": controllers,
    "cluster": cluster,
    "unclean": unclean,
    "fencing": fencing,
    "joining": joining,
    "minimum": minimum,
    "bit-rot": bit_rot,
    "file-damage": file_damage,
    "coordinators": coordinators,
    "pipelined": pipelined,
    "transaction-steps": transaction_steps,
    "rebalance-steps": rebalance_steps,
    "share-steps": share_steps,
}

# These inject a fault at every step in turn, not at random: a seed takes up to a minute, and more
# seeds find little more.
STEPPED: Final = frozenset({"transaction-steps", "rebalance-steps", "share-steps"})
