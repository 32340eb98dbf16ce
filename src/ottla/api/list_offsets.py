"""ListOffsets: the offset at which a log begins, ends, or reaches a timestamp.

Negative timestamps and the first version that has them:

    -1  latest          v1   the end that the request's isolation level may read
    -2  earliest        v1   the log's start
    -3  max timestamp   v7   the record with the largest timestamp (KIP-734)
    -4  earliest local  v8   the first offset on this broker's disks (KIP-405)
    -5  latest tiered   v9   the last offset in remote storage (KIP-1005); none here
    -6  pending upload  v11  the first offset not in remote storage yet (KIP-1023); none here

A new leader does not return the latest offset until its high watermark has reached the start of
its leader epoch (KIP-207): the offset could be smaller than one that the previous leader returned.
A row with an error has offset -1.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.fetch_read import everybody
from ottla.api.replies import ITEMS_PER_STEP, Steps, batched, collect, finish
from ottla.api.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, OffsetNotAvailable
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.types import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Millis, Offset
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import CONSUMER, DEBUGGER, Isolation
from ottla.storage.read import TimestampedOffset

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOT_AVAILABLE_SINCE: Final = 5
_ISOLATION_LEVELS: Final = (0, 1)
_NOTHING: Final = TimestampedOffset(NO_TIMESTAMP, Offset(-1), NO_EPOCH)


class ListOffsetsHandlers(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners."""

    partitions: Partitions
    may_describe: Callable[[Caller, str], bool] = everybody

    def on_list_offsets(
        self, caller: Caller, request: ListOffsetsRequest, version: int
    ) -> ListOffsetsResponse:
        """Find an offset in each partition in one step."""
        return finish(self.list_offsets_steps(caller, request, version))

    def list_offsets_steps(
        self, caller: Caller, request: ListOffsetsRequest, version: int
    ) -> Steps[ListOffsetsResponse]:
        """Find an offset in each partition; one requested twice is rejected, once."""
        asked: dict[str, dict[int, ListOffsetsPartition | None]] = {}
        refused: list[ListOffsetsTopic] = []
        for count, topic in enumerate(request.topics):
            if not self.may_describe(caller, topic.name):
                refused.append(topic)
                continue
            known = asked.setdefault(topic.name, {})
            for group in batched(topic.partitions):
                for each in group:
                    known[each.partition_index] = None if each.partition_index in known else each
                if len(topic.partitions) > ITEMS_PER_STEP or not count % ITEMS_PER_STEP:
                    yield
        topics: list[ListOffsetsTopicResponse] = []
        for name, of in asked.items():
            if not of:
                continue  # Kafka builds the answer from partitions: a topic without any is left out
            rows = self._rows(request, version, name, of)
            topics.append(ListOffsetsTopicResponse(name, (yield from collect(rows))))
            if not len(topics) % ITEMS_PER_STEP:
                yield
        for topic in refused:
            refusals = map(_refusal, topic.partitions)
            topics.append(ListOffsetsTopicResponse(topic.name, (yield from collect(refusals))))
        return ListOffsetsResponse(topics=topics)

    def _rows(
        self,
        request: ListOffsetsRequest,
        version: int,
        topic: str,
        asked: dict[int, ListOffsetsPartition | None],
    ) -> Iterable[ListOffsetsPartitionResponse]:
        for index, each in asked.items():
            row = ListOffsetsPartitionResponse(index)
            if each is None or request.isolation_level not in _ISOLATION_LEVELS:
                row.error_code = ErrorCode.INVALID_REQUEST
            elif each.timestamp < 0 and version < _SINCE.get(each.timestamp, 2**15):
                row.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    row.timestamp, row.offset, row.leader_epoch = self._find(topic, each, request)
                except Fault as fault:
                    row.error_code = _code(fault, version)
            yield row

    def _find(
        self, topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest
    ) -> TimestampedOffset:
        partition = self.partitions.find(topic, asked.partition_index)
        partition.check_leader_epoch(LeaderEpoch(asked.current_leader_epoch))
        if request.replica_id != DEBUGGER:
            partition.check_leader()
        is_client = request.replica_id == CONSUMER
        end = partition.readable_end(_isolation(request, is_client=is_client))
        if asked.timestamp == LATEST:
            if is_client:
                partition.check_offset_available()
            return TimestampedOffset(NO_TIMESTAMP, end, partition.leader_epoch)
        if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            return _earliest(partition)
        found = _search(partition, asked.timestamp)
        if found is not None and found.offset < end:
            return found
        if is_client:
            partition.check_offset_available()
        return _NOTHING


def _refusal(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Return the row of a topic that the client may not describe, one for each that asks."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ListOffsetsPartitionResponse(asked.partition_index, code)


def _isolation(request: ListOffsetsRequest, *, is_client: bool) -> Isolation:
    if not is_client:
        return Isolation.LOG_END
    return Isolation.LAST_STABLE if request.isolation_level == 1 else Isolation.HIGH_WATERMARK


def _earliest(partition: Partition) -> TimestampedOffset:
    """Return the log start offset, with the leader epoch that wrote it if that is known."""
    log = partition.log
    first = log.epochs.earliest
    is_known = first is not None and first.start_offset <= log.log_start_offset
    epoch = first.epoch if is_known and first is not None else NO_EPOCH
    return TimestampedOffset(NO_TIMESTAMP, log.log_start_offset, epoch)


def _search(partition: Partition, timestamp: int) -> TimestampedOffset | None:
    if timestamp == MAX_TIMESTAMP:
        return partition.find_timestamp(None)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    return partition.find_timestamp(Millis(timestamp))


def _code(fault: Fault, version: int) -> ErrorCode:
    if isinstance(fault, OffsetNotAvailable) and version < _NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return fault.code
