"""Writes the markers that end transactions into partitions led here (WriteTxnMarkers).

A marker is replicated as with acks=all. Markers of ``__consumer_offsets`` are written by the group
coordinator, whose state they change.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Fault,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Offset, TopicPartition
from ottla.replication.appending import ALL
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.ports import Clock

Codes: TypeAlias = dict[TopicPartition, ErrorCode]


class Ending(NamedTuple):
    """How the transaction of one producer ends. ``version`` is its transaction version."""

    producer: Producer
    marker: EndTxnMarker
    version: int = 0


Written: TypeAlias = "asyncio.Future[Any] | None"
"""A future that completes when a marker is committed; None if it is."""

EndGroupTransaction: TypeAlias = Callable[[int, Ending], Written]
"""Ends a transaction in a partition of ``__consumer_offsets``; raises faults of a coordinator."""


class MarkerWriter(msgspec.Struct, frozen=True):
    """The partitions led here. Waits ``timeout_ms`` for a marker to be replicated."""

    partitions: Partitions
    clock: Clock
    end_group_transaction: EndGroupTransaction
    timeout_ms: int = 30_000

    async def write(self, ending: Ending, places: Iterable[TopicPartition]) -> Codes:
        """Append to each partition; return the code of each once it is known."""
        codes: Codes = {}
        waiting: dict[TopicPartition, asyncio.Future[Any]] = {}
        for place in places:
            try:
                done = self._begin(ending, place)
            except Fault as fault:
                codes[place] = _code(fault)
            else:
                if done is None:
                    codes[place] = ErrorCode.NONE
                else:
                    waiting[place] = done
        if waiting:
            codes |= await self._settle(waiting)
        return codes

    def _begin(self, ending: Ending, place: TopicPartition) -> Written:
        """Append one marker; return None, or a future that completes when it is committed."""
        if place.topic == CONSUMER_OFFSETS:
            return self.end_group_transaction(place.partition, ending)
        partition = self.partitions.get(*place)
        if partition is None:
            # As Kafka answers for a partition that is not hosted here: the sender looks up the
            # leader again.
            raise UnknownTopicOrPartition(str(place))
        now = self.clock.now()
        appended = partition.append(
            build_end_txn_marker(ending.marker, ending.producer, now),
            now=now,
            required_acks=ALL,
            from_client=False,
            transaction_version=ending.version,
        )
        return _replicated(partition, Offset(appended.last_offset + 1))

    async def _settle(self, waiting: "dict[TopicPartition, asyncio.Future[Any]]") -> Codes:
        """Wait for all; one that takes too long gets a timeout, and may still be written."""
        await asyncio.wait(waiting.values(), timeout=self.timeout_ms / 1000)
        codes: Codes = {}
        for place, future in waiting.items():
            if not future.done():
                future.cancel()
                codes[place] = ErrorCode.REQUEST_TIMED_OUT
                continue
            error = future.exception()
            if error is not None and not isinstance(error, Fault):
                raise error
            codes[place] = ErrorCode.NONE if error is None else _code(error)
        return codes


def _replicated(partition: Partition, end: Offset) -> Written:
    """Return a future for the replication, None if it is replicated already."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(fault: Fault | None) -> None:
        if future.done():
            return
        if fault is None:
            future.set_result(None)
        else:
            future.set_exception(fault)

    unsubscribe = partition.when_replicated(end, done)
    if future.done() and future.exception() is None:
        return None
    future.add_done_callback(lambda _: unsubscribe())
    return future


def _code(fault: Fault) -> ErrorCode:
    """Return an error that the transaction coordinator understands: it knows no groups."""
    if isinstance(fault, NotCoordinator | CoordinatorLoading | CoordinatorNotAvailable):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return fault.code
