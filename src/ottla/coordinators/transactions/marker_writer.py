"""Writes the markers that end transactions into partitions led here (WriteTxnMarkers).

A marker is replicated as with acks=all. Markers of ``__consumer_offsets`` are written by the group
coordinator, whose state they change.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

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
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.appending import ALL
from ottla.replication.leading.waiters import Unsubscribe
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Clock

Codes: TypeAlias = dict[TopicPartition, ErrorCode]


class Ending(NamedTuple):
    """How the transaction of one producer ends. ``version`` is its transaction version."""

    producer: Producer
    marker: EndTxnMarker
    version: int = 0


EndGroupTransaction: TypeAlias = Callable[[int, Ending], Pending[None]]
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
        written: dict[TopicPartition, Pending[None]] = {}
        for place in places:
            try:
                written[place] = self._begin(ending, place)
            except Fault as fault:
                codes[place] = _code(fault)
        return codes | await self._settle(written)

    def _begin(self, ending: Ending, place: TopicPartition) -> Pending[None]:
        """Append one marker; the result comes when it is committed."""
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

    async def _settle(self, written: dict[TopicPartition, Pending[None]]) -> Codes:
        """Wait for all; one that takes too long gets a timeout, and may still be written."""
        codes: Codes = {}
        deadline = asyncio.get_running_loop().time() + self.timeout_ms / 1000
        for place, committed in written.items():
            try:
                async with asyncio.timeout_at(deadline):
                    await committed
            except TimeoutError:
                codes[place] = ErrorCode.REQUEST_TIMED_OUT
            except Fault as fault:
                codes[place] = _code(fault)
            else:
                codes[place] = ErrorCode.NONE
        return codes


def _replicated(partition: Partition, end: Offset) -> Pending[None]:
    """Return a reply that comes when the marker is replicated."""
    replicated: Pending[None] = Pending(lambda: unsubscribe())

    def done(fault: Fault | None) -> None:
        if fault is None:
            replicated.answer(None)
        else:
            replicated.fail(fault)

    unsubscribe: Unsubscribe = lambda: None  # noqa: E731 - it may be called within the next call
    unsubscribe = partition.when_replicated(end, done)
    return replicated


def _code(fault: Fault) -> ErrorCode:
    """Return an error that the transaction coordinator understands: it knows no groups."""
    if isinstance(fault, NotCoordinator | CoordinatorLoading | CoordinatorNotAvailable):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return fault.code
