"""Service: sends markers to every partition of an ended transaction until all have them.

    prepared, committed --leaders by the image--> WriteTxnMarkers --all NONE--> complete
             ^                                         |
             +-------- not leader, timed out, ... -----+  after a pause

Prepared and committed transactions are read from the shards, so nothing is lost with this service:
a coordinator that takes over finds the same work. A partition of a deleted topic needs no marker. A
partition that rejects the marker because a newer epoch of the producer or of the coordinator has
written there ends the attempt for good, as in Kafka: another coordinator has taken over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeAlias

import msgspec

from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.transactions.machine import TransactionMachine, TransactionsView
from ottla.coordinators.transactions.marker_writer import Codes, Ending
from ottla.coordinators.transactions.rules import decide_complete
from ottla.coordinators.transactions.transaction import Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""The pause before failed markers are sent again: an election takes longer."""

GONE: Final = -2
NO_LEADER: Final = -1

# The transaction's records never arrived there, so there is nothing to end.
_NEEDLESS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_FINAL: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)

LeaderOf: TypeAlias = Callable[[TopicPartition], int]
"""The broker that leads a partition; `NO_LEADER` for now, `GONE` if the partition is deleted."""


class SendMarkers(Protocol):
    """Delivers markers to the leaders, including this broker."""

    def __call__(
        self, broker: int, ending: Ending, places: list[TopicPartition]
    ) -> Awaitable[Codes]:
        """Have markers written; partitions without a reply count as not written."""
        ...


class _Work(msgspec.Struct, frozen=True):
    """One ended transaction of one shard."""

    index: int
    ended: Transaction


class Superseded(Exception):
    """A partition has seen a newer producer or coordinator."""


class Markers:
    """The service. Call `wake` whenever a prepared transaction is committed."""

    name = "transaction-markers"

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionMachine],
        leader_of: LeaderOf,
        send: SendMarkers,
        due: asyncio.Event | None = None,
        retry_ms: int = RETRY_MS,
    ) -> None:
        self._runtime = runtime
        self._leader_of = leader_of
        self._send = send
        self._retry_ms = retry_ms
        self._due = due or asyncio.Event()
        # The epoch in which a transaction is in progress, or was given up for this leadership.
        self._taken: dict[_Work, int] = {}

    def wake(self) -> None:
        """Look for transactions whose markers are due."""
        self._due.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Send markers until cancelled."""
        ready()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._due.wait()
                self._due.clear()
                for work, epoch in self._find():
                    self._taken[work] = epoch
                    group.create_task(self._end(work, epoch), name=work.ended.transactional_id)

    def _find(self) -> list[tuple[_Work, int]]:
        """Return the prepared and committed transactions not yet started in this leadership."""
        found: dict[_Work, int] = {}
        for index, shard in self._runtime.active():
            view = shard.committed()
            assert isinstance(view, TransactionsView)
            for ended in view.prepared.values():
                found[_Work(index, ended)] = shard.epoch
        self._taken = {work: each for work, each in self._taken.items() if work in found}
        return [(work, epoch) for work, epoch in found.items() if self._taken.get(work) != epoch]

    # -- one transaction -----------------------------------------------------------

    async def _end(self, work: _Work, epoch: int) -> None:
        """Send until every partition has its marker, then complete the transaction."""
        ended = work.ended
        missing = sorted(ended.partitions)
        try:
            while missing:
                missing = await self._round(ended, epoch, missing)
                if not self._is_current(work, epoch):
                    self._put_back(work, epoch)
                    return
                if missing:
                    await asyncio.sleep(self._retry_ms / 1000)
            await self._complete(work)
        except Superseded as reason:
            log.warning("markers given up id=%r reason=%s", ended.transactional_id, reason)
        except Fault as fault:
            # The shard is closed, or its timer will find the transaction again.
            self._put_back(work, epoch)
            log.info("markers delayed id=%r reason=%s", ended.transactional_id, fault)

    def _put_back(self, work: _Work, epoch: int) -> None:
        """Allow the transaction to be found again."""
        if self._taken.get(work) == epoch:
            del self._taken[work]

    def _is_current(self, work: _Work, epoch: int) -> bool:
        """Whether this is still current: the same leadership, the same transaction."""
        try:
            shard = self._runtime.shard(work.index)
        except Fault:
            return False
        found = shard.machine.transactions.get(work.ended.transactional_id)
        return shard.epoch == epoch and found == work.ended

    async def _round(
        self, ended: Transaction, epoch: int, missing: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Send the missing markers once; return what is still missing.

        Raises:
            Superseded: a partition has seen a newer producer or coordinator.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in missing:
            by_leader.setdefault(self._leader_of(place), []).append(place)
        by_leader.pop(GONE, None)
        left = by_leader.pop(NO_LEADER, [])
        producer = Producer(ended.producer_id, ended.producer_epoch)
        ending = Ending(producer, EndTxnMarker(ended.is_commit, epoch), ended.version)
        answers = await asyncio.gather(
            *(self._send(broker, ending, places) for broker, places in by_leader.items())
        )
        for places, codes in zip(by_leader.values(), answers, strict=True):
            left.extend(place for place in places if not _is_done(place, codes))
        return left

    async def _complete(self, work: _Work) -> None:
        await self._runtime.submit(
            work.index, lambda machine, now, _: decide_complete(machine, work.ended, now)
        )


def _is_done(place: TopicPartition, codes: Codes) -> bool:
    code = codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
    if code in _FINAL:
        raise Superseded(f"{place}: {code.name}")
    return code in _NEEDLESS
