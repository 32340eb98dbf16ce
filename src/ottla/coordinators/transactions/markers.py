"""Service: tells every partition of an ended transaction how it ended, until all of them know.

    prepared, committed --leaders by the image--> WriteTxnMarkers --all NONE--> complete
             ^                                         |
             +-------- not leader, timed out, ... -----+  after a pause

What is prepared and committed is read from the shards themselves, so nothing is lost with this
service: a coordinator that takes over finds the same work. A partition of a topic that is gone
needs no marker. One that refuses because a newer epoch of the producer or of the coordinator has
written there ends the attempt for good, as in Kafka: somebody else has taken over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeAlias

import msgspec

from ottla.coordinators.reply_future import AsyncReplyFuture
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
"""The pause before the markers that failed are sent again: an election takes longer."""

GONE: Final = -2
NO_LEADER: Final = -1

# The data never got there, so there is nothing to end.
_NEEDLESS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_FINAL: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)

LeaderOf: TypeAlias = Callable[[TopicPartition], int]
"""The broker that leads a partition; `NO_LEADER` for now, `GONE` if there is no such partition."""


class SendMarkers(Protocol):
    """The way to the leaders, this broker among them."""

    def __call__(
        self, broker: int, ending: Ending, places: list[TopicPartition]
    ) -> Awaitable[Codes]:
        """Have markers written; partitions without an answer count as not written."""
        ...


class _Work(msgspec.Struct, frozen=True):
    """One ended transaction of one shard."""

    index: int
    ended: Transaction


class Superseded(Exception):
    """A partition knows of a newer producer or coordinator."""


class Markers:
    """The service. `wake` it, or set ``due``, when a prepared end of a transaction is committed."""

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
        # Under way, or given up for as long as the reign lasts: in which epoch.
        self._taken: dict[_Work, int] = {}

    def wake(self) -> None:
        """Look for what has become due."""
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
        """Return what is prepared and committed and not yet taken on in this reign."""
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
            # The shard is gone, or comes to it again by its timer.
            self._put_back(work, epoch)
            log.info("markers put off id=%r reason=%s", ended.transactional_id, fault)

    def _put_back(self, work: _Work, epoch: int) -> None:
        """Let whoever finds it take it on."""
        if self._taken.get(work) == epoch:
            del self._taken[work]

    def _is_current(self, work: _Work, epoch: int) -> bool:
        """Whether this is still ours to end: the same reign, the same transaction."""
        try:
            shard = self._runtime.shard(work.index)
        except Fault:
            return False
        found = shard.machine.transactions.get(work.ended.transactional_id)
        return shard.epoch == epoch and found == work.ended

    async def _round(
        self, ended: Transaction, epoch: int, missing: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Send what is missing once; return what still is.

        Raises:
            Superseded: a partition knows of somebody newer.
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
        future = AsyncReplyFuture()
        self._runtime.shard(work.index).submit(
            lambda machine, now: decide_complete(machine, work.ended, now), future
        )
        outcome = future.outcome()
        if isinstance(outcome, asyncio.Future):
            await outcome


def _is_done(place: TopicPartition, codes: Codes) -> bool:
    code = codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
    if code in _FINAL:
        raise Superseded(f"{place}: {code.name}")
    return code in _NEEDLESS
