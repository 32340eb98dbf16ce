"""The scenario ``unclean``: a partition loses all complete replicas, and some leader is wanted.

Followers of a partition are cut off from its leader one after the other, each a while after the one
before, so that each has less than the next; then the leader dies. What is left differs in length;
if one comes back that had led before and missed the reign since, the longest log is not the best.
The replica with the most leads (KIP-966): nothing is lost that a living replica of the last reign
had. In every second world the topic allows it by itself, in the others an operator asks. In the end
the dead come back and all are equal.
"""

import asyncio
from functools import partial
from typing import Final

from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from simulation.cluster_client import ClusterClient
from simulation.cluster_directed import Directed, Held
from simulation.cluster_watch import TOPIC
from simulation.ledger import InvariantBroken
from simulation.world import World

UNCLEAN: Final = 1


async def unclean(world: World) -> None:
    """The most complete of the incomplete replicas leads."""
    await UncleanTorment(world).run()


class UncleanTorment(Directed):
    """Wounds one partition again and again."""

    def __init__(self, world: World) -> None:
        self.is_allowed = world.seed % 2 == 0
        allowed = "true" if self.is_allowed else "false"
        super().__init__(world, 1, configs={"unclean.leader.election.enable": allowed})
        self.is_asking = False

    async def aim(self) -> None:
        """Wound the partition, see who leads, and go on from there."""
        for _ in range(1 + self.world.random.below(3)):
            dead = await self._wound()
            survivors = await self._survivors()
            self.is_asking = not self.is_allowed
            await self._until(partial(self._is_led_by_another, dead), "of elections")
            self.is_asking = False
            await self._judge(survivors)
            if self.world.random.chance(0.6):
                await self._bring_back_cut_off(dead)
            else:
                await self._heal_all()

    async def _wound(self) -> int:
        """Leave the leader as the only one in sync, the others at different ends; kill it."""
        random = self.world.random
        await asyncio.sleep(random.between(0.1, 0.5))
        leader = self._partition().leader
        for follower in self._followers():
            await self._cut_off(leader, follower)
            await asyncio.sleep(random.between(0.05, 0.4))
        self._kill_now(leader)
        self._heal_links()
        return leader

    async def _bring_back_cut_off(self, dead: int) -> None:
        """Start who died with more records than its successor, and keep it from cutting them."""
        self._cut(self._partition().leader, dead)
        self._restart(self.machines[dead - 1])
        await self._until(lambda: self._image().cluster.is_unfenced(dead), "of who died")

    async def _judge(self, before: dict[int, Held]) -> None:
        """See that who leads had the most, and still has it."""
        leader = self._partition().leader
        ends = {node: held.how_complete for node, held in before.items()}
        if ends[leader] != max(ends.values()):
            raise InvariantBroken(f"{leader} leads; last epochs and ends were {ends}")
        self.world.journal.note("*", "recovered", str(leader))
        after = (await self._survivors())[leader]
        had = before[leader].batches
        if after.batches[: len(had)] != had:
            raise InvariantBroken(f"{leader} lost records it had")

    async def operate(self, client: ClusterClient) -> None:
        """Ask for an election where the partition needs somebody's word."""
        if self.is_asking:
            request = ElectLeadersRequest(UNCLEAN, [TopicPartitions(TOPIC, [0])], 800)
            await client.ask(client.anybody(), request)
