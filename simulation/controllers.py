"""The scenario ``controllers``: whole nodes of the quorum, with image and active controller.

The hosts and faults are those of the scenario ``quorum``. Meanwhile four clients that never fail
create, configure and delete topics, two of them through a broker's forwarder. Links to the clients
stay up, so that a leader that is cut off from its peers continues to accept requests.
`ControllerWatch` checks the invariants.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from ottla.runtime.ports import Address
from simulation.controller_client import ControllerClient, ForwardedClient
from simulation.controller_node import run_controller
from simulation.controller_watch import ControllerWatch
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.quorum import HEALED_S, STEP_S, QuorumScenario, make_machines, run_quorum
from simulation.quorum_node import PORT, Machine
from simulation.simulation import Main, Ports, Simulation

DIRECT = ("ann", "bob")
FORWARDED = ("eve", "joe")
CLIENTS = (*DIRECT, *FORWARDED)
ROUNDS = 2
CALM_S = 0.4
LEADERSHIPS = 3


async def controllers(simulation: Simulation) -> None:
    """Whole nodes with controller and image: acknowledged changes survive, and all images agree."""
    await run_quorum(make_scenario(simulation), ROUNDS)


def make_scenario(simulation: Simulation) -> "ControllersScenario":
    """Return the hosts of a seed."""
    return ControllersScenario(simulation, ControllerWatch(), make_machines(simulation))


@dataclass
class ControllersScenario(QuorumScenario):
    """The hosts of one quorum of controllers, their clients, and the injected faults."""

    watch: ControllerWatch

    def _main(self, machine: Machine) -> Main:
        async def run(ports: Ports) -> None:
            await run_controller(ports, machine, self.watch)

        return run

    def begin(self) -> None:
        """Start everything."""
        super().begin()
        for name in CLIENTS:
            self.simulation.host(name).start(self._client(name))

    def _client(self, name: str) -> Main:
        async def run(ports: Ports) -> None:
            kind = ForwardedClient if name in FORWARDED else ControllerClient
            await kind(name, ports, self.watch, self._pick).run()

        return run

    def _pick(self) -> Address:
        """Return the node that a client asks: mostly the leader, else a random one."""
        leader = self._leader()
        if leader is None or self.simulation.random.chance(0.3):
            leader = self.machines[self.simulation.random.below(len(self.machines))]
        return Address(leader.name, PORT)

    # -- the end -------------------------------------------------------------

    async def finish(self) -> None:
        """Repair and work without faults; cut all power at once; then check every acknowledged
        change.
        """
        self._heal()
        await self._settle("after healing")
        await self._pass_leadership_on()
        await self._settle("after leadership went round")
        self.watch.is_calm = True
        await self._work("in peace")
        self.watch.is_calm = False
        for machine in self.machines:
            self.host(machine).crash(Keep.NOTHING)
        self._heal()
        await self._settle("after the last power loss")
        await self._work("after the last power loss")
        self.watch.is_over = True
        for name in CLIENTS:
            await self.simulation.host(name).wait_down()
        await self._settle("at the end")
        for machine in self.machines:
            self.watch.audit(machine.name)

    async def _pass_leadership_on(self) -> None:
        """Make leaders resign, so that a node leads that has led before in this process."""
        for _ in range(LEADERSHIPS):
            leader = self._leader()
            if leader is not None and leader.driver is not None:
                resign = partial(leader.driver.resign, leader.driver.describe().epoch)
                self.host(leader).call_inside(resign)
            await asyncio.sleep(self.simulation.random.between(0.15, 0.35))

    async def _work(self, when: str) -> None:
        """Wait, longer if needed, until clients complete some work."""
        before = self.watch.acknowledged
        await asyncio.sleep(CALM_S)
        waited = 0.0
        while self.watch.acknowledged == before:
            await asyncio.sleep(STEP_S)
            waited += STEP_S
            if waited > HEALED_S:
                raise InvariantBroken(f"nothing was acknowledged {when}: {self._describe()}")
