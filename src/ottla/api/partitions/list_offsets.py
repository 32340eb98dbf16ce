"""ListOffsets: the offset at which a log begins, ends, or reaches a timestamp.

Negative timestamps and the first version that has them:

    -1  latest          v1   the end that the request's isolation level may read
    -2  earliest        v1   the log's start
    -3  max timestamp   v7   the record with the largest timestamp (KIP-734)
    -4  earliest local  v8   the first offset on this broker's disks (KIP-405)
    -5  latest tiered   v9   the last offset in remote storage (KIP-1005)
    -6  pending upload  v11  the first offset not in remote storage yet (KIP-1023)

A timestamp is looked up in remote storage first, if the log begins there, off the event loop and
within ``remote.list.offsets.request.timeout.ms`` (KIP-1075).

A new leader does not return the latest offset until its high watermark has reached the start of
its leader epoch (KIP-207): the offset could be smaller than one that the previous leader returned.
A row with an error has offset -1.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ottla.api.fetch.reading import everybody
from ottla.api.fetch.remote import RemoteReader
from ottla.api.surface.replies import ITEMS_PER_STEP, Reply, Steps, Work, batched, collect
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, OffsetNotAvailable, RequestTimedOut
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
from ottla.storage.log.read import TimestampedOffset

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


class _Lookup(msgspec.Struct):
    """A row that remote storage has to answer; the reader may see offsets below ``end``.

    ``timestamp`` was asked for, ``wanted`` is what to look for in remote storage.
    """

    partition: Partition
    timestamp: int
    wanted: Millis
    end: Offset
    is_client: bool
    row: ListOffsetsPartitionResponse = msgspec.field(default_factory=ListOffsetsPartitionResponse)


class ListOffsetsHandlers(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners."""

    partitions: Partitions
    may_describe: Callable[[Caller, str], bool] = everybody
    remote: RemoteReader | None = None

    def list_offsets_steps(
        self, caller: Caller, request: ListOffsetsRequest, version: int
    ) -> Steps[Reply]:
        """Find an offset in each partition; one requested twice is rejected, once."""
        asked: dict[str, dict[int, ListOffsetsPartition | None]] = {}
        refused: list[ListOffsetsTopic] = []
        for count, topic in enumerate(request.topics):
            if not count % ITEMS_PER_STEP:
                yield
            if not self.may_describe(caller, topic.name):
                refused.append(topic)
                continue
            known = asked.setdefault(topic.name, {})
            for group in batched(topic.partitions):
                for each in group:
                    known[each.partition_index] = None if each.partition_index in known else each
                if len(topic.partitions) > ITEMS_PER_STEP:
                    yield
        topics: list[ListOffsetsTopicResponse] = []
        lookups: list[_Lookup] = []
        for name, of in asked.items():
            if not of:
                continue  # Kafka builds the answer from partitions: a topic without any is left out
            rows = self._rows(request, version, name, of, lookups)
            topics.append(ListOffsetsTopicResponse(name, (yield from collect(rows))))
            if not len(topics) % ITEMS_PER_STEP:
                yield
        for topic in refused:
            refusals = map(_refusal, topic.partitions)
            topics.append(ListOffsetsTopicResponse(topic.name, (yield from collect(refusals))))
            if not len(topics) % ITEMS_PER_STEP:
                yield
        response = ListOffsetsResponse(topics=topics)
        return Work(self._look_up(response, lookups, version)) if lookups else response

    def _rows(
        self,
        request: ListOffsetsRequest,
        version: int,
        topic: str,
        asked: dict[int, ListOffsetsPartition | None],
        lookups: list[_Lookup],
    ) -> Iterable[ListOffsetsPartitionResponse]:
        for index, each in asked.items():
            row = ListOffsetsPartitionResponse(index)
            if each is None or request.isolation_level not in _ISOLATION_LEVELS:
                row.error_code = ErrorCode.INVALID_REQUEST
            elif each.timestamp < 0 and version < _SINCE.get(each.timestamp, 2**15):
                row.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    found = self._find(topic, each, request)
                    if isinstance(found, _Lookup):
                        lookups.append(found)
                        found.row = row
                    else:
                        row.timestamp, row.offset, row.leader_epoch = found
                except Fault as fault:
                    row.error_code = _code(fault, version)
            yield row

    def _find(
        self, topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest
    ) -> TimestampedOffset | _Lookup:
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
        if asked.timestamp in _OF_TIER:
            return _OF_TIER[asked.timestamp](partition)
        wanted = self._wanted_of_remote(partition, asked.timestamp)
        if wanted is not None:
            return _Lookup(partition, asked.timestamp, wanted, end, is_client)
        return _within(partition, _search(partition, asked.timestamp), end, is_client=is_client)

    def _wanted_of_remote(self, partition: Partition, timestamp: int) -> Millis | None:
        """Return the timestamp to look for in remote storage; None if it cannot be there."""
        log = partition.log
        if self.remote is None or log.local_log_start_offset == log.log_start_offset:
            return None
        # The largest timestamp is that of the local segments, as in Kafka.
        return None if timestamp == MAX_TIMESTAMP else Millis(timestamp)

    async def _look_up(
        self, response: ListOffsetsResponse, lookups: Sequence["_Lookup"], version: int
    ) -> ListOffsetsResponse:
        """Complete the rows that remote storage has to answer."""
        assert self.remote is not None
        find = self.remote.find_timestamp
        asked = [(each, find(each.partition, each.wanted)) for each in lookups]
        await asyncio.wait(
            [future for _, future in asked], timeout=self.remote.lookup_wait_ms / 1000
        )
        for each, future in asked:
            row = each.row
            try:
                if not future.done():
                    future.cancel()
                    raise RequestTimedOut(f"{each.partition}: remote storage is slow")
                found = future.result() or _search(each.partition, each.timestamp)
                found = _within(each.partition, found, each.end, is_client=each.is_client)
                row.timestamp, row.offset, row.leader_epoch = found
            except Fault as fault:
                row.error_code = _code(fault, version)
            except asyncio.CancelledError:
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response


def _within(
    partition: Partition, found: TimestampedOffset | None, end: Offset, *, is_client: bool
) -> TimestampedOffset:
    """Return what was found if the reader may see it."""
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


def _earliest_local(partition: Partition) -> TimestampedOffset:
    """Return the first offset on this disk."""
    log = partition.log
    return _stamped(partition, log.local_log_start_offset)


def _latest_tiered(partition: Partition) -> TimestampedOffset:
    """Return the last offset in remote storage; -1 if there is none."""
    log = partition.log
    if not log.config.is_tiered or log.remote_end <= 0:
        return _NOTHING
    return _stamped(partition, Offset(log.remote_end - 1))


def _pending_upload(partition: Partition) -> TimestampedOffset:
    """Return the first offset that is not in remote storage yet."""
    log = partition.log
    if not log.config.is_tiered:
        return _NOTHING
    if log.remote_end <= 0 and log.local_log_start_offset != log.log_start_offset:
        return _NOTHING  # how far remote storage reaches is not known yet
    return _stamped(partition, max(log.remote_end, log.log_start_offset))


def _stamped(partition: Partition, offset: Offset) -> TimestampedOffset:
    epoch = partition.log.epochs.epoch_for_offset(offset)
    return TimestampedOffset(NO_TIMESTAMP, offset, NO_EPOCH if epoch is None else epoch)


_OF_TIER: Final[Mapping[int, Callable[[Partition], TimestampedOffset]]] = {
    EARLIEST: _earliest,
    EARLIEST_LOCAL: _earliest_local,
    LATEST_TIERED: _latest_tiered,
    EARLIEST_PENDING_UPLOAD: _pending_upload,
}
"""Answers that need no search."""


def _search(partition: Partition, timestamp: int) -> TimestampedOffset | None:
    if timestamp == MAX_TIMESTAMP:
        return partition.find_timestamp(None)
    return partition.find_timestamp(Millis(timestamp))


def _code(fault: Fault, version: int) -> ErrorCode:
    if isinstance(fault, OffsetNotAvailable) and version < _NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return fault.code
