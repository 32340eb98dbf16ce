"""Reports to the controller in which directory of this broker a replica is (KIP-858)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.client.controller_client import ControllerClient
from ottla.metadata.topics import DIRECTORY_LOST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.types import Uuid
from ottla.replication.host import Host
from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

RETRY_MS: Final = 500
TIMEOUT_MS: Final = 30_000
# Kafka's own bound on one request.
ASSIGNMENTS_MAX: Final = 2_250

Key = tuple[Uuid, int]


class DirectoryReports:
    """Service: keeps what is to be reported until the controller has accepted it.

    ``holds_back`` says of which replicas the controller must not be notified yet.
    """

    name = "directory-reports"

    def __init__(
        self,
        host: Host,
        controller: ControllerClient,
        holds_back: Callable[[Partition], bool] = lambda partition: False,
    ) -> None:
        self._host = host
        self._holds_back = holds_back
        self._controller = controller
        self._pending: dict[Key, Partition] = {}
        self._lost: set[Key] = set()  # of the pending ones: reported as lost
        self._changed = asyncio.Event()
        host.log_events.on_placed(self._placed)
        host.log_events.on_usable(self.placed)
        host.log_events.on_lost(self.lost)

    def _placed(self, partition: Partition) -> None:
        if not self._holds_back(partition):
            self.placed(partition)

    def placed(self, partition: Partition) -> None:
        """Report soon where a partition is."""
        self._lost.discard((partition.topic_id, partition.index))
        self._pending[partition.topic_id, partition.index] = partition
        self._changed.set()

    def lost(self, partition: Partition) -> None:
        """Report soon that a partition cannot be used here, as if its directory had failed."""
        self.placed(partition)
        self._lost.add((partition.topic_id, partition.index))

    def _directory_id(self, key: Key, partition: Partition) -> Uuid:
        return DIRECTORY_LOST if key in self._lost else partition.directory.directory_id

    async def run(self, ready: Callable[[], None]) -> None:
        """Report until cancelled."""
        ready()
        while True:
            self._changed.clear()
            if not self._pending:
                await self._changed.wait()
            if not await self._send():
                await asyncio.sleep(RETRY_MS / 1000)

    async def _send(self) -> bool:
        """Send one request; False when something must be sent again after a pause."""
        hosted = {key: each for key, each in self._pending.items() if self._is_due(key, each)}
        batch = dict(list(hosted.items())[:ASSIGNMENTS_MAX])
        self._pending = hosted
        self._lost &= hosted.keys()
        if not batch:
            return True
        try:
            response = await self._controller.ask(self._request(batch), TIMEOUT_MS)
        except (Fault, OSError) as error:
            log.info("active controller not reachable reason=%s", error)
            return False
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code:
            log.info("directory report rejected error=%s", ErrorCode(response.error_code).name)
            return False
        for directory_id, key in _accepted(response):
            # A partition that has moved meanwhile is reported again.
            if key in batch and self._directory_id(key, batch[key]) == directory_id:
                self._pending.pop(key, None)
                self._lost.discard(key)
        return not self._pending

    def _is_due(self, key: Key, partition: Partition) -> bool:
        """Whether a partition is still to be reported: not one that left this node.

        One that went offline is: while the controller believes it in a directory that works, it
        may elect it.
        """
        return self._host.partitions.by_id(*key) is partition

    def _request(self, batch: dict[Key, Partition]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, RequestTopicData]] = {}
        for (topic_id, index), partition in batch.items():
            at = self._directory_id((topic_id, index), partition)
            topics = directories.setdefault(at, {})
            topic = topics.setdefault(topic_id, RequestTopicData(topic_id))
            topic.partitions.append(RequestPartitionData(index))
        return AssignReplicasToDirsRequest(
            broker_id=self._host.node_id,
            broker_epoch=self._host.broker_epoch,
            directories=[
                RequestDirectoryData(directory_id, list(topics.values()))
                for directory_id, topics in directories.items()
            ],
        )


# Errors after which repeating the report is useless: the controller knows better.
_FINAL: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


def _accepted(response: AssignReplicasToDirsResponse) -> list[tuple[Uuid, Key]]:
    return [
        (directory.id, (topic.topic_id, partition.partition_index))
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
        if partition.error_code in _FINAL
    ]
