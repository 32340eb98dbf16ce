"""A simulated operator of a cluster: makes its topic, then moves things about while others work.

Replicas go to other log directories and to other brokers, preferred leaders are asked for. Any
answer is fine: what is wanted may be impossible, and what is lost is not asked again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.metadata.image import Image
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from simulation.cluster_client import ClusterClient
from simulation.cluster_node import DATA, META, Shape
from simulation.cluster_watch import TOPIC, ClusterWatch
from simulation.simulation import Ports

PAUSE_S: Final = 0.15
PREFERRED: Final = 0


class Operator(ClusterClient):
    """Works until ``watch.is_calm``. ``image`` gives the newest image that any node shows."""

    def __init__(
        self, ports: Ports, watch: ClusterWatch, shape: Shape, image: Callable[[], Image]
    ) -> None:
        super().__init__("operator", ports, watch, shape.nodes)
        self._shape = shape
        self._image = image

    async def run(self) -> None:
        """Make the topic, then do something now and then."""
        while self._image().topics.named(TOPIC) is None:
            await asyncio.sleep(PAUSE_S)
            await self._create()
        random = self.ports.random
        while not self.watch.is_calm:
            await asyncio.sleep(0.2 + random.fraction())
            orders = (self._move_directory, self._move_directory, self._reassign, self._elect)
            if not self.watch.is_calm:
                await orders[random.below(len(orders))]()

    async def _create(self) -> None:
        brokers = self._image().cluster.brokers.values()
        if sum(not each.fenced for each in brokers) == self._shape.nodes:
            topic = CreatableTopic(TOPIC, len(self.watch.partitions), self._shape.replicas)
            await self.ask(self.anybody(), CreateTopicsRequest([topic], 1000))

    def _index(self) -> int:
        return self.ports.random.below(len(self.watch.partitions))

    async def _move_directory(self) -> None:
        """Move a replica to another log directory of its broker."""
        path = (META, DATA)[self.ports.random.below(2)]
        topic = AlterReplicaLogDirTopic(TOPIC, [self._index()])
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [topic])])
        await self.ask(self.anybody(), request)

    async def _reassign(self) -> None:
        """Have a partition on other brokers, or on the same in another order."""
        nodes = list(range(1, self._shape.nodes + 1))
        random = self.ports.random
        replicas = [nodes.pop(random.below(len(nodes))) for _ in range(self._shape.replicas)]
        topic = ReassignableTopic(TOPIC, [ReassignablePartition(self._index(), replicas)])
        await self.ask(self.anybody(), AlterPartitionReassignmentsRequest(500, topics=[topic]))

    async def _elect(self) -> None:
        topics = [TopicPartitions(TOPIC, list(range(len(self.watch.partitions))))]
        await self.ask(self.anybody(), ElectLeadersRequest(PREFERRED, topics, 500))
