"""A follower whose next offset is only in remote storage: skip what is there (KIP-405).

The leader answers OFFSET_MOVED_TO_TIERED_STORAGE. The follower asks where the leader's local log
begins, finds the remote segment before that, takes over its leader epochs and producers, and starts
an empty log after it. The log start stays the leader's.
"""

from typing import Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from ottla.replication.partition import Partition
from ottla.storage.log.log import TierHistory


class RemoteHistory(Protocol):
    """Finds the history of a partition in remote storage."""

    async def find(
        self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: Offset
    ) -> TierHistory | None:
        """Return the history up to the end of the segment with ``offset``, None if unknown.

        Raises a `Fault` if remote storage cannot be read now.
        """
        ...


class HistoryNotFound(Fault):
    """The remote segment before the leader's local log is not known here yet; retried later."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


def epoch_end_request(partition: Partition, current: LeaderEpoch, epoch: int, replica_id: int
                      ) -> OffsetForLeaderEpochRequest:  # fmt: skip
    """Return the request for the end of an epoch in the leader's log."""
    asked = OffsetForLeaderPartition(partition.index, current, epoch)
    topics = [OffsetForLeaderTopic(partition.topic, [asked])]
    return OffsetForLeaderEpochRequest(replica_id, topics)


def epoch_before(response: Message, offset: Offset) -> LeaderEpoch | None:
    """Return the epoch that wrote ``offset``, if it is the one that was asked for."""
    assert isinstance(response, OffsetForLeaderEpochResponse)
    answers = [answer for topic in response.topics for answer in topic.partitions]
    if len(answers) != 1 or answers[0].error_code or answers[0].end_offset <= offset:
        return None
    return LeaderEpoch(answers[0].leader_epoch)
