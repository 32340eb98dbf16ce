"""Writes the markers that end transactions into partitions led here (WriteTxnMarkers).

A marker is replicated as with acks=all. Markers of ``__consumer_offsets`` are written by the group
coordinator, whose state they change.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

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
Begun: TypeAlias = Pending[None] | ErrorCode
"""A marker that was appended and is to be replicated, or why it was not appended."""

SETTLED_PER_TURN: Final = 500
"""Partitions whose codes are collected before other requests are served."""


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
        deadline = self.deadline()
        return await self.settle({place: self.begin(ending, place) for place in places}, deadline)

    def deadline(self) -> float:
        """Return until when markers that are appended now are waited for, in the loop's time."""
        return asyncio.get_running_loop().time() + self.timeout_ms / 1000

    def begin(self, ending: Ending, place: TopicPartition) -> Begun:
        """Append one marker; return its error, or what comes when it is committed."""
        try:
            return self._append(ending, place)
        except Fault as fault:
            return _code(fault)

    def _append(self, ending: Ending, place: TopicPartition) -> Pending[None]:
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

    async def settle(self, begun: Mapping[TopicPartition, Begun], deadline: float) -> Codes:
        """Wait for all; one that takes too long gets a timeout, and may still be written."""
        codes: Codes = {}
        for number, (place, outcome) in enumerate(begun.items(), 1):
            if number % SETTLED_PER_TURN == 0:
                await asyncio.sleep(0)
            if isinstance(outcome, ErrorCode):
                codes[place] = outcome
            else:
                codes[place] = await _committed(outcome, deadline)
        return codes


async def _committed(written: Pending[None], deadline: float) -> ErrorCode:
    try:
        async with asyncio.timeout_at(deadline):
            await written
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    except Fault as fault:
        return _code(fault)
    return ErrorCode.NONE


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
