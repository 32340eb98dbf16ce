"""The results of a Produce request in progress."""

import logging

import msgspec

from ottla.api.partition_wait import Subscribe
from ottla.api.produce_reply import PartitionResult
from ottla.api.replies import NO_REPLY, Answer, Result
from ottla.api.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotLeader, UnknownTopicId, UnknownTopicOrPartition
from ottla.protocol.types import Uuid

log = logging.getLogger(__name__)


class ProduceResults(msgspec.Struct):
    """The results of a request in its order, and what they wait for; holds no request bytes."""

    caller: Caller
    version: int
    acks: int
    topics: list[tuple[str | Uuid, int]] = []
    """Each topic with the number of its partitions."""
    results: list[PartitionResult] = []
    waits: dict[int, Subscribe] = {}
    """What a result waits for, by its index."""
    rejection: tuple[tuple[str, int], Fault] | None = None
    """The first batch that was rejected for what it contains, and why."""
    rejections: int = 0

    def reject(self, name: str, index: int, fault: Fault) -> None:
        """Count a rejected batch, unless it is only in the wrong place."""
        if not isinstance(fault, NotLeader | UnknownTopicOrPartition | UnknownTopicId):
            self.rejections += 1
            self.rejection = self.rejection or ((name, index), fault)

    def add_topic(self, topic: str | Uuid, count: int) -> None:
        """Announce ``count`` results of a topic; a piece may continue the topic of the last one."""
        if self.topics and self.topics[-1][0] == topic:
            count += self.topics.pop()[1]
        self.topics.append((topic, count))

    def ended(self, slot: int, code: ErrorCode) -> None:
        """Store the outcome of waiting for replication; a failed result keeps its offsets."""
        if code is not ErrorCode.NONE:
            self.results[slot] = self.results[slot]._replace(error_code=code)

    def nothing(self) -> Result:
        """Return the reply to acks=0: none, or a closed connection after an error."""
        failed = any(each.error_code for each in self.results)
        return Answer(NO_REPLY, close=True) if failed else NO_REPLY

    def log_rejected(self) -> None:
        """Log once per request why batches were not appended."""
        if self.rejection is not None:
            (name, index), fault = self.rejection
            log.info(
                "append rejected partition=%r-%d peer=%s client_id=%r error=%s reason=%s count=%d",
                *(name, index, self.caller.peer, self.caller.client_id, fault.code.name, fault),
                self.rejections,
            )
