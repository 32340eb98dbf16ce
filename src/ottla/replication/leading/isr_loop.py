"""Send ISR proposals to the controller and apply its answers (AlterPartition).

Proposals made while a request is in flight are sent together with the next one. A controller that
cannot be reached, or has not seen the latest metadata yet, is retried.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.client.controller_client import ControllerClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.types import Uuid
from ottla.replication.host import Host
from ottla.replication.leading.isr_state import Proposal
from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 30_000
# Limit of one request, to keep it small for the controller.
PARTITIONS_MAX: Final = 5_000


class IsrChanges:
    """Service: sends what leaders propose. A partition has at most one proposal here at a time."""

    name = "isr-changes"

    def __init__(self, host: Host, controller: ControllerClient) -> None:
        self._host = host
        self._controller = controller
        self._pending: dict[Partition, Proposal] = {}
        self._changed = asyncio.Event()
        self._shrinks = self._expands = 0
        host.log_events.on_proposed(self.submit)

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal soon; it replaces an older one of the same partition."""
        self._pending[partition] = proposal
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Send proposals until cancelled."""
        ready()
        while True:
            self._changed.clear()
            if not self._pending:
                await self._changed.wait()
            if not await self._send_all():
                await asyncio.sleep(RETRY_MS / 1000)

    async def _send_all(self) -> bool:
        """Send one request; False when something must be sent again after a pause."""
        batch = dict(list(self._pending.items())[:PARTITIONS_MAX])
        for partition, proposal in batch.items():
            del self._pending[partition]
            if partition.proposal is not proposal:
                log.debug("isr proposal is obsolete partition=%s", partition)
        batch = {each: p for each, p in batch.items() if each.proposal is p}
        if not batch:
            return True
        try:
            response = await self._controller.ask(self._request(batch), TIMEOUT_MS)
        except (Fault, OSError) as error:
            log.info("active controller not reachable reason=%s", error)
            self._again(batch)
            return False
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            log.info("isr changes rejected error=%s", ErrorCode(response.error_code).name)
            self._again(batch)
            return False
        return self._process(batch, response)

    def _again(self, batch: dict[Partition, Proposal]) -> None:
        for partition, proposal in batch.items():
            self._pending.setdefault(partition, proposal)

    def _request(self, batch: dict[Partition, Proposal]) -> AlterPartitionRequest:
        topics: dict[Uuid, RequestTopicData] = {}
        for partition, proposal in batch.items():
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id))
            topic.partitions.append(
                RequestPartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        BrokerState(broker, epoch)
                        for broker, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._host.node_id,
            broker_epoch=self._host.broker_epoch,
            topics=list(topics.values()),
        )

    def _process(self, batch: dict[Partition, Proposal], response: AlterPartitionResponse) -> bool:
        answers = {
            (topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        retried: dict[Partition, Proposal] = {}
        for partition, proposal in batch.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                retried[partition] = proposal
            elif answer.error_code:
                error = ErrorCode(answer.error_code)
                log.info("isr change rejected partition=%s isr=%s error=%s",
                         partition, proposal.isr, error.name)  # fmt: skip
                if partition.isr_refused(proposal, error):
                    retried[partition] = proposal
            else:
                log.info("isr changed partition=%s isr=%s", partition, answer.isr)
                self._count(partition.isr, answer.isr)
                partition.isr_accepted(
                    proposal, tuple(answer.isr), answer.leader_epoch, answer.partition_epoch
                )
        self._again(retried)
        return not retried

    @property
    def changes(self) -> tuple[int, int]:
        """How often an ISR shrank and expanded since the start, as the controller accepted."""
        return self._shrinks, self._expands

    def _count(self, before: Sequence[int], after: Sequence[int]) -> None:
        self._shrinks += not set(before) <= set(after)
        self._expands += not set(after) <= set(before)


async def shrink_isr(host: Host) -> None:
    """Propose an ISR without lagging replicas for every partition led here."""
    for partition in host.partitions:
        gone = partition.shrink_isr()
        if gone:
            log.info("isr shrinking partition=%s without=%s", partition, gone)
