"""The scenario ``unclean``: a partition loses all complete replicas, and some leader is wanted.

Followers of a partition are cut off from its leader one after the other, some time apart, so that
each has fewer records than the next; then the leader crashes. The remaining logs differ in length.
If a former leader comes back that missed the last leader epoch, the longest log is not the best.
The replica with the most records of the last leader epoch is elected (KIP-966): no record is lost
that a live replica of that epoch has. With every second seed the topic allows unclean elections,
with the others an operator requests one. In the end the crashed nodes come back and all replicas
are equal.
"""

import asyncio
from functools import partial
from typing import Final

from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from simulation.cluster_client import ClusterClient
from simulation.cluster_directed import DirectedScenario, Held
from simulation.cluster_watch import TOPIC
from simulation.ledger import InvariantBroken
from simulation.simulation import Simulation

UNCLEAN: Final = 1


async def unclean(simulation: Simulation) -> None:
    """The most complete of the incomplete replicas becomes leader."""
    await UncleanScenario(simulation).run()


class UncleanScenario(DirectedScenario):
    """Leave one partition without a complete replica, again and again."""

    def __init__(self, simulation: Simulation) -> None:
        self.is_allowed = simulation.seed % 2 == 0
        allowed = "true" if self.is_allowed else "false"
        super().__init__(simulation, 1, configs={"unclean.leader.election.enable": allowed})
        self.is_asking = False

    async def aim(self) -> None:
        """Lose the complete replicas, check the elected leader, and repeat."""
        for _ in range(1 + self.simulation.random.below(3)):
            dead = await self._lose_complete_replicas()
            survivors = await self._survivors()
            self.is_asking = not self.is_allowed
            await self._until(partial(self._is_led_by_another, dead), "of elections")
            self.is_asking = False
            await self._check_leader(survivors)
            if self.simulation.random.chance(0.6):
                await self._bring_back_cut_off(dead)
            else:
                await self._heal_all()

    async def _lose_complete_replicas(self) -> int:
        """Leave the leader alone in the ISR, the others at different end offsets; kill it."""
        random = self.simulation.random
        await asyncio.sleep(random.between(0.1, 0.5))
        leader = self._partition().leader
        for follower in self._followers():
            await self._cut_off(leader, follower)
            await asyncio.sleep(random.between(0.05, 0.4))
        self._kill_now(leader)
        self._heal_links()
        return leader

    async def _bring_back_cut_off(self, dead: int) -> None:
        """Start a crashed replica with more records than its successor, and keep it from
        truncating.
        """
        self._cut(self._partition().leader, dead)
        self._restart(self.machines[dead - 1])
        await self._until(lambda: self._image().cluster.is_unfenced(dead), "of who died")

    async def _check_leader(self, before: dict[int, Held]) -> None:
        """Check that the leader had the most complete log, and still has it."""
        leader = self._partition().leader
        ends = {node: held.how_complete for node, held in before.items()}
        if ends[leader] != max(ends.values()):
            raise InvariantBroken(f"{leader} leads; last epochs and ends were {ends}")
        self.simulation.journal.note("*", "recovered", str(leader))
        after = (await self._survivors())[leader]
        had = before[leader].batches
        if after.batches[: len(had)] != had:
            raise InvariantBroken(f"{leader} lost records it had")

    async def operate(self, client: ClusterClient) -> None:
        """Request an election where the partition does not allow unclean elections by itself."""
        if self.is_asking:
            request = ElectLeadersRequest(UNCLEAN, [TopicPartitions(TOPIC, [0])], 800)
            await client.ask(client.anybody(), request)
