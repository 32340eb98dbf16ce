"""The transaction coordinator of a broker.

Every method answers for this broker alone. An id whose shard is not here raises `NotCoordinator`,
one still being loaded `CoordinatorLoading`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

from ottla.coordinators.decision import Decision
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.transactions.machine import TransactionMachine, TransactionsView
from ottla.coordinators.transactions.rules import (
    NEEDS_PRODUCER_ID,
    decide_add,
    decide_end,
    decide_init,
    decide_verify,
    init_reply,
)
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.coordinators.transactions.transaction import Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis, ProducerId, TopicPartition


class FreshProducerIds(Protocol):
    """The source of producer ids."""

    def next(self) -> Awaitable[ProducerId]:
        """Return an unused id; raises CoordinatorLoading if none is available."""
        ...


class TransactionCoordinator(msgspec.Struct, frozen=True):
    """All transactional ids that this broker coordinates."""

    runtime: CoordinatorRuntime[TransactionMachine]
    ids: FreshProducerIds

    async def _decided(
        self,
        transactional_id: str,
        decide: Callable[[TransactionMachine, ProducerId | None, Millis], Decision],
    ) -> Any:  # noqa: ANN401 - each request has a reply of its own
        """Decide in the shard, with a new producer id if the decision needs one."""
        fresh: ProducerId | None = None
        while True:

            def decided(
                machine: TransactionMachine, now: Millis, given: ProducerId | None = fresh
            ) -> Decision:
                return decide(machine, given, now)

            reply = await self.runtime.write(transactional_id, decided)
            if reply is not NEEDS_PRODUCER_ID:
                return reply
            fresh = await self.ids.next()

    async def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """InitProducerId with a transactional id. Faults are part of the reply."""
        try:
            reply: InitProducerIdResponse = await self._decided(
                request.transactional_id or "",
                lambda machine, fresh, now: decide_init(machine, request, fresh, now),
            )
        except Fault as fault:
            return init_reply(fault.code)
        return reply

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client: Client,
    ) -> ErrorCode:
        """Add partitions to a transaction."""
        wanted = frozenset(partitions)
        code: ErrorCode = await self._decided(
            transactional_id,
            lambda machine, fresh, now: decide_add(
                machine, transactional_id, producer, wanted, client, now
            ),
        )
        return code

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check for each partition whether it is part of the open transaction."""
        wanted = list(partitions)
        codes: dict[TopicPartition, ErrorCode] = await self._decided(
            transactional_id,
            lambda machine, fresh, now: decide_verify(machine, transactional_id, producer, wanted),
        )
        return codes

    async def end(self, request: EndTxnRequest, client: Client) -> EndTxnResponse:
        """EndTxn."""
        reply: EndTxnResponse = await self._decided(
            request.transactional_id,
            lambda machine, fresh, now: decide_end(machine, request, client, fresh, now),
        )
        return reply

    # -- reading -------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction | None:
        """Return the committed state of an id."""
        view: TransactionsView = self.runtime.read(transactional_id)
        return view.transactions.get(transactional_id)

    def all(self) -> list[Transaction]:
        """Return the committed state of all ids in shards that are loaded here."""
        return [each for view in self.runtime.views() for each in view.transactions.values()]
