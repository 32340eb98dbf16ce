"""The scenario ``fencing``: which broken brokers are fenced at once, and which are not.

Four combined nodes, three of them voters, with a session timeout that is long compared with the
time of a fail-over. A fault hits one broker, or the active controller, or the links between them:

    kill         the process ends and the machine stays up: fenced at once, and nobody else
    power, cut, one way, slow, reset
                 the broker may be alive: no broker is fenced before its session expires

Afterwards everything is repaired and the cluster becomes whole again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from simulation.cluster_directed import STEADY, DirectedScenario
from simulation.cluster_node import Machine, Shape
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.simulation import Simulation

SESSION_S: Final = 3.0
# The fault may come just before a heartbeat, and links delay messages.
HEARTBEAT_S: Final = 0.15
SOON_S: Final = 1.0
LOOK_S: Final = 0.01
SETTINGS: Final = STEADY + f"broker.session.timeout.ms={int(SESSION_S * 1000)}\n"
FAULTS: Final = ("kill", "power", "cut", "one way", "slow", "reset")


async def fencing(simulation: Simulation) -> None:
    """A broker whose process is gone is fenced at once; one that may be alive is not."""
    await FencingScenario(simulation).run()


class FencingScenario(DirectedScenario):
    """One fault per run; the victim is the active controller or another broker."""

    def __init__(self, simulation: Simulation, fault: str | None = None) -> None:
        super().__init__(simulation, min_insync=2, more=SETTINGS)
        self.shape = Shape(4, 3, replicas=3, min_insync=2, is_durable=False, more=SETTINGS)
        self.machines = [Machine(i, self.shape) for i in range(1, 5)]
        random = simulation.random
        self.fault = fault or FAULTS[random.below(len(FAULTS))]
        self.is_controller_hit = random.chance(0.5)
        self.fenced_after_s: float | None = None

    async def aim(self) -> None:
        """Inject the fault; watch which brokers are fenced, and when."""
        await self._until(self._is_settled, "before the fault")
        await asyncio.sleep(self.simulation.random.between(0.5, 1.0))
        active = next(
            each for each in self.machines if each.node and each.node.is_active_controller
        )
        others = [each for each in self.machines if each is not active]
        other = others[self.simulation.random.below(len(others))]
        victim = active if self.is_controller_hit else other
        self._faults()[self.fault](victim, active if victim is other else other)
        await self._watch(victim)

    def _is_settled(self) -> bool:
        return sum(not each.fenced for each in self._image().cluster.brokers.values()) == 4

    def _faults(self) -> dict[str, Callable[[Machine, Machine], None]]:
        network = self.simulation.network
        return {
            "kill": lambda victim, _: self.host(victim).kill(),
            "power": lambda victim, _: self.host(victim).crash(Keep.NOTHING),
            "cut": lambda victim, _: self._isolate_from_all(victim, one_way=False),
            "one way": lambda victim, _: self._isolate_from_all(victim, one_way=True),
            "slow": lambda victim, _: self._slow(victim),
            "reset": lambda victim, other: network.reset(victim.name, other.name),
        }

    def _isolate_from_all(self, victim: Machine, *, one_way: bool) -> None:
        is_outgoing = self.simulation.random.chance(0.5)
        for other in self.machines:
            if other is not victim:
                ends = (victim.name, other.name) if is_outgoing else (other.name, victim.name)
                self.simulation.network.cut(*ends, one_way=one_way)
                # Whatever the cut interrupts is broken as well, as by a device in between.
                self.simulation.network.reset(*ends)

    def _slow(self, victim: Machine) -> None:
        for other in self.machines:
            for link in ((victim.name, other.name), (other.name, victim.name)):
                self.simulation.network.link(*link).delay_s = 0.1
            self.simulation.network.reset(victim.name, other.name)

    async def _watch(self, victim: Machine) -> None:
        """Check what is fenced while a session could not have expired."""
        loop = self.simulation.loop
        began, is_kill = loop.time(), self.fault == "kill"
        while (passed := loop.time() - began) < SESSION_S - HEARTBEAT_S:
            fenced = [each.id for each in self._image().cluster.brokers.values() if each.fenced]
            if fenced and not (is_kill and fenced == [victim.node_id]):
                raise InvariantBroken(
                    f"{self.fault} of {victim.name}: fenced {fenced} after {passed:.2f} s"
                )
            if fenced and self.fenced_after_s is None:
                self.fenced_after_s = passed
            await asyncio.sleep(LOOK_S)
        if is_kill and (self.fenced_after_s is None or self.fenced_after_s > SOON_S):
            raise InvariantBroken(f"{victim.name} was killed, fenced after {self.fenced_after_s} s")
