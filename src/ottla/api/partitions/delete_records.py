"""DeleteRecords: move the start of logs led here, and wait until every replica follows.

The result of a partition is its low watermark: the smallest log start offset among the live
replicas. No reader sees the records from now on; they are deleted with their segments.
"""

from functools import partial

import msgspec

from ottla.api.cluster.metadata import INTERNAL_TOPICS
from ottla.api.groups.group_access import May, everybody
from ottla.api.partitions.partition_wait import PartitionWait, Subscribe
from ottla.api.surface.replies import ITEMS_PER_STEP, Reply, Steps, batched, finish
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, InvalidTopic
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.types import Offset
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition

NO_LOW_WATERMARK = -1


class _Deletion(msgspec.Struct):
    """One partition of a request; ``partition`` is None if it has failed."""

    result: DeleteRecordsPartitionResult
    partition: Partition | None = None

    def ended(self, code: ErrorCode) -> None:
        """Store the outcome of waiting for the followers."""
        assert self.partition is not None
        self.result.error_code = code
        if code is ErrorCode.NONE:
            self.result.low_watermark = self.partition.low_watermark
        elif code is not ErrorCode.REQUEST_TIMED_OUT:
            self.result.low_watermark = NO_LOW_WATERMARK


class DeleteRecordsHandler(msgspec.Struct, frozen=True):
    """Serves DeleteRecords."""

    partitions: Partitions
    may_delete: May = everybody

    def handle(self, caller: Caller, request: DeleteRecordsRequest, version: int) -> Reply:
        """Advance the log starts in one step, then wait."""
        return finish(self.delete_steps(caller, request, version))

    def delete_steps(
        self, caller: Caller, request: DeleteRecordsRequest, version: int
    ) -> Steps[Reply]:
        """Advance every log start that may be advanced; return a reply that waits for the replicas.

        The last offset of a partition named twice counts, and it has one result.
        """
        response = DeleteRecordsResponse()
        deletions: list[_Deletion] = []
        waits: dict[int, Subscribe] = {}
        last_offsets = yield from _last_offsets(request)
        for name, offsets in last_offsets.items():
            found = DeleteRecordsTopicResult(name)
            response.topics.append(found)
            if not len(response.topics) % ITEMS_PER_STEP:
                yield
            if not self.may_delete(caller, name):
                found.partitions = [
                    DeleteRecordsPartitionResult(
                        index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                    for index in offsets
                ]
                continue
            for index, asked in offsets.items():
                deletion, offset = self._delete(name, index, asked)
                if deletion.partition is not None:
                    waits[len(deletions)] = partial(deletion.partition.when_deleted, offset)
                deletions.append(deletion)
                found.partitions.append(deletion.result)
                if not len(deletions) % ITEMS_PER_STEP:
                    yield
        waiting = PartitionWait(lambda slot, code: deletions[slot].ended(code), lambda: response)
        return waiting.begin(waits, request.timeout_ms)

    def _delete(self, topic: str, index: int, offset: int) -> tuple[_Deletion, Offset]:
        """Advance one log start; return its result and the new log start."""
        result = DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK)
        try:
            partition = self.partitions.find(topic, index)
            if topic in INTERNAL_TOPICS:
                raise InvalidTopic(f"records of {topic} are not for clients to delete")
            wanted = partition.delete_records(Offset(offset))
        except Fault as fault:
            result.error_code = fault.code
            return _Deletion(result), Offset(offset)
        result.low_watermark = partition.low_watermark
        return _Deletion(result, partition), wanted


def _last_offsets(request: DeleteRecordsRequest) -> Steps[dict[str, dict[int, int]]]:
    """Return the last offset of every partition, in order of first mention.

    A topic without partitions is left out, as in Kafka.
    """
    found: dict[str, dict[int, int]] = {}
    for count, topic in enumerate(request.topics):
        if not count % ITEMS_PER_STEP:
            yield
        if not topic.partitions:
            continue
        offsets = found.setdefault(topic.name, {})
        for group in batched(topic.partitions):
            offsets.update((each.partition_index, each.offset) for each in group)
            if len(topic.partitions) > ITEMS_PER_STEP:
                yield
    return found
