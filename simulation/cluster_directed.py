"""Simulations that aim a fault at one weak spot of replication, every time.

The scenario ``cluster`` injects faults at random and seldom hits moments of a few milliseconds.
These scenarios wait for the moment. The first node is the controller and not a replica, so that a
broker that is cut off from a leader is not fenced.

``joining``: a follower comes back far behind. As soon as it counts as in sync, all others crash. It
becomes leader and must have all acknowledged records.

``minimum``: the leader is left alone, below min.insync.replicas, and is written to with acks=1. It
crashes; the replica that left the ISR last is complete, and all records that were read are still
there (KIP-966).
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
from simulation.cluster import ClusterScenario
from simulation.cluster_client import ClusterClient
from simulation.cluster_node import Shape
from simulation.cluster_watch import TOPIC, ClusterWatch, batches_of
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports, Simulation

NODES: Final = 4
VOTERS: Final = 1
STEP_S: Final = 0.05
WAIT_S: Final = 20.0
# Leaders change when they crash, and for no other reason.
STEADY: Final = "auto.leader.rebalance.enable=false\n"
# One batch per fetch, so that catching up takes many fetches.
SMALL_STEPS: Final = STEADY + "replica.fetch.max.bytes=1\n"
ACKS_LEADER, ACKS_ALL = 1, -1


async def joining(simulation: Simulation) -> None:
    """A replica in the ISR has all acknowledged records."""
    await JoiningScenario(simulation).run()


async def minimum(simulation: Simulation) -> None:
    """Records that were read survive, even below min.insync.replicas."""
    await BelowMinimumScenario(simulation).run()


class Held:
    """The content of a replica: its batches, and what makes it more complete than another."""

    def __init__(self, partition: Partition) -> None:
        end = int(partition.log.log_end_offset)
        self.high_watermark = int(partition.log.high_watermark)
        self.batches = [data for _, _, data in batches_of(partition, 0, end)]
        epoch = int(read_header(self.batches[-1]).leader_epoch) if self.batches else -1
        self.how_complete = (epoch, end)

    def committed(self) -> list[bytes]:
        """Return the batches that readers can see."""
        return [
            data for data in self.batches if read_header(data).next_offset <= self.high_watermark
        ]


class DirectedScenario(ClusterScenario):
    """One partition, its replicas on brokers that are not controllers."""

    def __init__(
        self,
        simulation: Simulation,
        min_insync: int,
        more: str = STEADY,
        configs: dict[str, str] | None = None,
    ) -> None:
        shape = Shape(NODES, VOTERS, replicas=3, min_insync=min_insync, is_durable=False, more=more)
        super().__init__(simulation, shape, ClusterWatch(1))
        others = [2, 3, 4]
        self.replicas = [others.pop(simulation.random.below(len(others))) for _ in range(3)]
        self.configs = configs or {}
        self.acks = ACKS_LEADER
        self.is_writing = True
        self.acknowledged: list[tuple[int, bytes]] = []

    async def run(self) -> None:
        """Start everything, run the directed fault, and check that the cluster recovers."""
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.simulation.host("operator").start(self._operate)
        await self._until(self._is_whole, "at the beginning")
        self.simulation.host("writer").start(self._write)
        await self.aim()
        await self._heal_all()
        self.is_writing = False
        await self._until(lambda: not self.simulation.host("writer").is_up, "with the last records")
        await self._are_all_equal()

    async def aim(self) -> None:
        """Inject the directed faults. Raises InvariantBroken."""
        raise NotImplementedError

    # -- what can be done ------------------------------------------------------

    def _partition(self) -> PartitionRegistration:
        topic = self._image().topics.named(TOPIC)
        if topic is None:
            raise InvariantBroken("the topic is gone")
        return topic.partitions[0]

    def _followers(self) -> list[int]:
        """Return the followers, in random order."""
        leader = self._partition().leader
        found = [each for each in self._partition().replicas if each != leader]
        if self.simulation.random.chance(0.5):
            found.reverse()
        return found

    async def _cut_off(self, leader: int, follower: int) -> None:
        """Cut a follower off from its leader, and wait until it leaves the ISR."""
        self._cut(leader, follower)
        await self._until(lambda: follower not in self._partition().isr, f"without {follower}")

    def _cut(self, one: int, other: int) -> None:
        names = self.machines[one - 1].name, self.machines[other - 1].name
        self.simulation.network.cut(*names, one_way=False)

    def _kill_now(self, *nodes: int) -> None:
        for each in nodes:
            self.host(self.machines[each - 1]).kill()

    async def _heal_all(self) -> None:
        self._heal_links()
        for machine in self.machines:
            if not self.host(machine).is_up:
                self._restart(machine)
        await self._until(self._is_whole, "after healing")

    def _is_led_by_another(self, *dead: int) -> bool:
        return self._partition().leader not in (-1, *dead)

    async def _until(
        self, condition: Callable[[], bool], when: str, step_s: float = STEP_S
    ) -> None:
        waited = 0.0
        while not condition():
            await asyncio.sleep(step_s)
            waited += step_s
            if waited > WAIT_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    # -- looking ---------------------------------------------------------------

    async def _survivors(self) -> dict[int, Held]:
        """Return what each live replica holds."""
        found: dict[int, Held] = {}
        for machine in self._up():
            for partition in self._hosted(machine):
                self.host(machine).call_inside(partial(_note, found, machine.node_id, partition))
        await asyncio.sleep(STEP_S)
        return found

    async def _are_all_equal(self) -> None:
        """Wait until all replicas are in sync, and check that they are equal."""
        while True:
            await self._until(self._is_whole, "in catching up")
            held = list((await self._survivors()).values())
            if len({each.how_complete for each in held}) == 1 and len(held) == len(self.replicas):
                break
        if any(each.batches != held[0].batches for each in held):
            raise InvariantBroken("replicas in sync are not equal")

    # -- clients ---------------------------------------------------------------

    async def _operate(self, ports: Ports) -> None:
        """Create the topic, then act as the scenario's operator."""
        client = ClusterClient("operator", ports, self.watch, NODES)
        topic = CreatableTopic(
            TOPIC,
            -1,
            -1,
            assignments=[CreatableReplicaAssignment(0, self.replicas)],
            configs=[CreatableTopicConfig(key, value) for key, value in self.configs.items()],
        )
        while self._image().topics.named(TOPIC) is None:
            await asyncio.sleep(STEP_S)
            if _unfenced(self._image()) == NODES:
                await client.ask(client.anybody(), CreateTopicsRequest([topic], 1000))
        while self.is_writing:
            await asyncio.sleep(STEP_S)
            await self.operate(client)

    async def operate(self, client: ClusterClient) -> None:
        """Repeat the operator's action; nothing by default."""

    def timestamp(self, ports: Ports) -> Millis:
        """Return the timestamp of a record written now."""
        return Millis(1)

    async def _write(self, ports: Ports) -> None:
        """Write one record after the other, as long as a leader accepts them."""
        client = ClusterClient("writer", ports, self.watch, NODES)
        number = 0
        while self.is_writing:
            await asyncio.sleep(ports.random.fraction() * STEP_S)
            leader = await client.leader(0)
            if leader is None:
                continue
            number += 1
            value = b"writer %d" % number
            record = Record(Offset(0), self.timestamp(ports), None, value)
            data = PartitionProduceData(0, build_batch([record]))
            topics = [TopicProduceData(TOPIC, client.topic_ids[TOPIC], [data])]
            request = ProduceRequest(acks=self.acks, timeout_ms=500, topic_data=topics)
            response = await client.ask(leader.node_id, request)
            if not isinstance(response, ProduceResponse):
                client.forget(0)
                continue
            row = response.responses[0].partition_responses[0]
            if row.error_code:
                client.forget(0)
            elif self.acks == ACKS_ALL:
                self.acknowledged.append((int(row.base_offset), value))


class JoiningScenario(DirectedScenario):
    """A follower that comes back far behind leads as soon as it is in sync."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, min_insync=2, more=SMALL_STEPS)
        self.acks = ACKS_ALL

    async def aim(self) -> None:
        """Let a follower fall behind; once it is in sync, crash all others."""
        leader = self._partition().leader
        late, other = self._followers()
        await self._cut_off(leader, late)
        had = len(self.acknowledged)
        await self._until(lambda: len(self.acknowledged) > had + 30, "while it is away")
        self._heal_links()
        await self._until(lambda: late in self._partition().isr, "of who was away", 0.005)
        self._kill_now(leader, other)
        replies = list(self.acknowledged)
        await self._until(partial(self._is_led_by_another, leader, other), "of elections")
        held = (await self._survivors())[late].batches
        there = {int(read_header(data).base_offset) for data in held}
        lost = [value for offset, value in replies if offset not in there]
        if lost:
            raise InvariantBroken(f"{late} leads without {len(lost)} acknowledged, as {lost[0]!r}")


class BelowMinimumScenario(DirectedScenario):
    """A lone leader below the minimum shows readers nothing that its crash would take back."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, min_insync=2)

    async def aim(self) -> None:
        """Leave a leader alone, write to it, and kill it."""
        leader = self._partition().leader
        for follower in self._followers():
            await self._cut_off(leader, follower)
        await asyncio.sleep(self.simulation.random.between(0.3, 0.8))
        shown = (await self._survivors())[leader].committed()
        self._kill_now(leader)
        self._heal_links()
        await self._until(partial(self._is_led_by_another, leader), "of elections")
        held = (await self._survivors())[self._partition().leader].batches
        if held[: len(shown)] != shown:
            raise InvariantBroken(f"readers saw {len(shown)} batches, and some are gone")


def _note(found: dict[int, Held], node_id: int, partition: Partition) -> None:
    found[node_id] = Held(partition)


def _unfenced(image: Image) -> int:
    return sum(not broker.fenced for broker in image.cluster.brokers.values())
