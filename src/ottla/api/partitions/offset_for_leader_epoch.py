"""OffsetForLeaderEpoch: the end of an epoch, by which a reader detects truncation (KIP-320).

Only the leader answers: the log of any other replica may itself be truncated.
"""

from collections.abc import Callable

import msgspec

from ottla.api.fetch.reading import everybody
from ottla.api.surface.replies import ITEMS_PER_STEP, Steps, collect
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.types import LeaderEpoch
from ottla.replication.hosted_partitions import Partitions


class EpochHandlers(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners."""

    partitions: Partitions
    may_describe: Callable[[Caller, str], bool] = everybody

    def offset_for_leader_epoch_steps(
        self, caller: Caller, request: OffsetForLeaderEpochRequest, version: int
    ) -> Steps[OffsetForLeaderEpochResponse]:
        """Return the largest epoch up to each requested one, and its end offset."""
        topics: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            rows = (self._row(caller, topic.topic, each) for each in topic.partitions)
            topics.append(OffsetForLeaderTopicResult(topic.topic, (yield from collect(rows))))
            if not len(topics) % ITEMS_PER_STEP:
                yield
        return OffsetForLeaderEpochResponse(topics=topics)

    def _row(self, caller: Caller, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        row = EpochEndOffset(partition=asked.partition)
        if not self.may_describe(caller, topic):
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return row
        current, epoch = LeaderEpoch(asked.current_leader_epoch), LeaderEpoch(asked.leader_epoch)
        try:
            partition = self.partitions.find(topic, asked.partition)
            row.leader_epoch, row.end_offset = partition.epoch_end(current, epoch)
        except Fault as fault:
            row.error_code = fault.code
        return row
