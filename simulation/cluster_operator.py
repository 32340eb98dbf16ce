"""A simulated operator of a cluster: creates its topic, then moves replicas and leaders.

Replicas move to other log directories and other brokers, and preferred leaders are elected. Any
answer is accepted: a request may be impossible, and lost requests are not repeated.
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
    """Run until ``watch.is_calm``. ``image`` returns the newest image of any node."""

    def __init__(
        self, ports: Ports, watch: ClusterWatch, shape: Shape, image: Callable[[], Image]
    ) -> None:
        super().__init__("operator", ports, watch, shape.nodes)
        self._shape = shape
        self._image = image

    async def run(self) -> None:
        """Create the topic, then make a random change from time to time."""
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
        """Reassign a partition to other brokers, or reorder its replicas."""
        nodes = list(range(1, self._shape.nodes + 1))
        random = self.ports.random
        replicas = [nodes.pop(random.below(len(nodes))) for _ in range(self._shape.replicas)]
        topic = ReassignableTopic(TOPIC, [ReassignablePartition(self._index(), replicas)])
        await self.ask(self.anybody(), AlterPartitionReassignmentsRequest(500, topics=[topic]))

    async def _elect(self) -> None:
        topics = [TopicPartitions(TOPIC, list(range(len(self.watch.partitions))))]
        await self.ask(self.anybody(), ElectLeadersRequest(PREFERRED, topics, 500))
