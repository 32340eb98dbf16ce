"""The scenario ``unclean``: a partition loses all complete replicas, and some leader is wanted.

Followers of a partition are cut off from its leader one after the other, each a while after the one
before, so that each has less than the next; then the leader dies. What is left differs in length;
if one comes back that had led before and missed the reign since, the longest log is not the best.
The replica with the most leads (KIP-966): nothing is lost that a living replica of the last reign
had. In every second world the topic allows it by itself, in the others an operator asks. In the end
the dead come back and all are equal.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset
from ottla.replication.partition import Partition
from ottla.sim.cluster import ClusterTorment
from ottla.sim.cluster_client import ClusterClient
from ottla.sim.cluster_node import Shape
from ottla.sim.cluster_watch import TOPIC, ClusterWatch, batches_of
from ottla.sim.ledger import InvariantBroken
from ottla.sim.world import Ports, World

# The first node is the controller, so that whoever is cut off from a leader is not fenced for it.
NODES: Final = 4
VOTERS: Final = 1
# Leaders change when they die, and for no other reason.
STEADY: Final = "auto.leader.rebalance.enable=false\n"
STEP_S: Final = 0.05
WAIT_S: Final = 20.0
UNCLEAN: Final = 1
LEADER_ONLY: Final = 1


async def unclean(world: World) -> None:
    """The most complete of the incomplete replicas leads."""
    await UncleanTorment(world).run()


class Held:
    """What a replica holds: its batches, and what makes it more complete than another."""

    def __init__(self, partition: Partition) -> None:
        end = int(partition.log.log_end_offset)
        self.batches = [data for _, _, data in batches_of(partition, 0, end)]
        epoch = int(read_header(self.batches[-1]).leader_epoch) if self.batches else -1
        self.how_complete = (epoch, end)


class UncleanTorment(ClusterTorment):
    """One partition, its replicas on the brokers that are no controllers."""

    def __init__(self, world: World) -> None:
        shape = Shape(NODES, VOTERS, replicas=3, min_insync=1, is_durable=False, more=STEADY)
        super().__init__(world, shape, ClusterWatch(1))
        self.is_allowed = world.seed % 2 == 0
        others = [2, 3, 4]
        self.replicas = [others.pop(world.random.below(len(others))) for _ in range(3)]
        self.is_writing = True
        self.is_asking = False

    async def run(self) -> None:
        """Wound the partition, see who leads, and heal it."""
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.world.host("operator").start(self._operate)
        await self._until(self._is_whole, "at the beginning")
        self.world.host("writer").start(self._write)
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
        await self._heal_all()
        self.is_writing = False
        await self._until(lambda: not self.world.host("writer").is_up, "with the last records")
        await self._are_all_equal()

    # -- wounds ----------------------------------------------------------------

    async def _wound(self) -> int:
        """Leave the leader as the only one in sync, the others at different ends; kill it."""
        random = self.world.random
        await asyncio.sleep(random.between(0.1, 0.5))
        leader = self._partition().leader
        followers = [each for each in self._partition().replicas if each != leader]
        if random.chance(0.5):
            followers.reverse()
        for follower in followers:
            self._cut(leader, follower)
            await self._until(self._left_isr(follower), f"while {follower} is cut off")
            await asyncio.sleep(random.between(0.05, 0.4))
        self.host(self.machines[leader - 1]).kill()
        self._heal_links()
        return leader

    def _is_led_by_another(self, dead: int) -> bool:
        return self._partition().leader not in (-1, dead)

    def _left_isr(self, follower: int) -> Callable[[], bool]:
        return lambda: follower not in self._partition().isr

    def _cut(self, leader: int, follower: int) -> None:
        self.world.network.cut(
            self.machines[leader - 1].name, self.machines[follower - 1].name, one_way=False
        )

    async def _bring_back_cut_off(self, dead: int) -> None:
        """Start who died with more records than its successor, and keep it from cutting them."""
        self._cut(self._partition().leader, dead)
        self._restart(self.machines[dead - 1])
        await self._until(lambda: self._image().cluster.is_unfenced(dead), "of who died")

    async def _heal_all(self) -> None:
        self._heal_links()
        for machine in self.machines:
            if not self.host(machine).is_up:
                self._restart(machine)
        await self._until(self._is_whole, "after healing")

    # -- judging ---------------------------------------------------------------

    def _partition(self) -> PartitionRegistration:
        topic = self._image().topics.named(TOPIC)
        if topic is None:
            raise InvariantBroken("the topic is gone")
        return topic.partitions[0]

    async def _survivors(self) -> dict[int, Held]:
        """Return what each living replica holds."""
        found: dict[int, Held] = {}
        for machine in self._up():
            for partition in self._hosted(machine):
                self.host(machine).call_inside(partial(_note, found, machine.node_id, partition))
        await asyncio.sleep(STEP_S)
        return found

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

    async def _are_all_equal(self) -> None:
        """Wait until all replicas are in sync, and see that they are equal."""
        while True:
            await self._until(self._is_whole, "in catching up")
            held = list((await self._survivors()).values())
            if len({each.how_complete for each in held}) == 1 and len(held) == len(self.replicas):
                break
        if any(each.batches != held[0].batches for each in held):
            raise InvariantBroken("replicas in sync are not equal")

    async def _until(self, condition: Callable[[], bool], when: str) -> None:
        waited = 0.0
        while not condition():
            await asyncio.sleep(STEP_S)
            waited += STEP_S
            if waited > WAIT_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    # -- clients ---------------------------------------------------------------

    async def _operate(self, ports: Ports) -> None:
        """Make the topic; then ask for an election whenever the partition needs somebody's word."""
        client = ClusterClient("operator", ports, self.watch, NODES)
        allowed = "true" if self.is_allowed else "false"
        topic = CreatableTopic(
            TOPIC,
            -1,
            -1,
            assignments=[CreatableReplicaAssignment(0, self.replicas)],
            configs=[CreatableTopicConfig("unclean.leader.election.enable", allowed)],
        )
        while self._image().topics.named(TOPIC) is None:
            await asyncio.sleep(STEP_S)
            if _unfenced(self._image()) == NODES:
                await client.ask(client.anybody(), CreateTopicsRequest([topic], 1000))
        while self.is_writing:
            await asyncio.sleep(STEP_S)
            if self.is_asking:
                request = ElectLeadersRequest(UNCLEAN, [TopicPartitions(TOPIC, [0])], 800)
                await client.ask(client.anybody(), request)

    async def _write(self, ports: Ports) -> None:
        """Write one record after the other, as far as a leader takes them."""
        client = ClusterClient("writer", ports, self.watch, NODES)
        number = 0
        while self.is_writing:
            await asyncio.sleep(ports.random.fraction() * STEP_S)
            leader = await client.leader(0)
            if leader is None:
                continue
            number += 1
            record = Record(Offset(0), Millis(1), None, b"writer %d" % number)
            data = PartitionProduceData(0, build_batch([record]))
            topics = [TopicProduceData(TOPIC, client.topic_ids[TOPIC], [data])]
            request = ProduceRequest(acks=LEADER_ONLY, timeout_ms=500, topic_data=topics)
            response = await client.ask(leader.node_id, request)
            if not isinstance(response, ProduceResponse) or _error(response):
                client.forget(0)


def _error(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def _note(found: dict[int, Held], node_id: int, partition: Partition) -> None:
    found[node_id] = Held(partition)


def _unfenced(image: Image) -> int:
    return sum(not broker.fenced for broker in image.cluster.brokers.values())
