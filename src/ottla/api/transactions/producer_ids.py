"""InitProducerId: an id for every idempotent producer, unique in the cluster (KIP-730).

    producer --InitProducerId--> broker --AllocateProducerIds, once in 1000--> controller

The controller records every block, so no two brokers have the same, and the unused ids of a
broker's last block are lost. A producer with a transactional id gets its id from its transaction
coordinator instead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.client.controller_client import ControllerClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CoordinatorLoading, RequestTimedOut
from ottla.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NodeId,
    ProducerEpoch,
    ProducerId,
)

log = logging.getLogger(__name__)

ALLOCATE_MS_MAX: Final = 5_000
"""How long a producer waits for a block; then it has to retry."""

FENCED_VERSION_FIRST: Final = 4
"""Below this version, a fenced producer gets INVALID_PRODUCER_EPOCH."""


class TransactionalProducers(Protocol):
    """The transaction coordinator, for the ids of producers."""

    def init_producer_id(self, request: InitProducerIdRequest) -> Awaitable[InitProducerIdResponse]:
        """Return the producer id and next epoch of a transactional id."""
        ...


class ProducerIds:
    """This broker's block of producer ids, replaced by another when used up.

    Producers that arrive while there is none wait for the same request.
    """

    def __init__(
        self, controller: ControllerClient, broker_id: NodeId, broker_epoch: Callable[[], int]
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Return an unused id.

        Raises:
            CoordinatorLoading: no block could be allocated; the client retries.
        """
        while self._next >= self._end:
            async with self._allocating:
                if self._next >= self._end:
                    await self._allocate()
        self._next += 1
        return ProducerId(self._next - 1)

    async def _allocate(self) -> None:
        request = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch())
        try:
            response = await self._controller.ask(request, ALLOCATE_MS_MAX)
        except RequestTimedOut as late:
            raise CoordinatorLoading(str(late)) from late
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code != ErrorCode.NONE or response.producer_id_len <= 0:
            name = ErrorCode(response.error_code).name
            log.warning("cannot allocate producer ids error=%s", name)
            raise CoordinatorLoading(f"the controller allocated no producer ids: {name}")
        self._next = response.producer_id_start
        self._end = self._next + response.producer_id_len
        log.info("producer ids first=%d last=%d", self._next, self._end - 1)


class InitProducerIdHandler:
    """Serves InitProducerId. Without a coordinator, transactional ids are rejected."""

    def __init__(
        self,
        ids: ProducerIds,
        coordinator: TransactionalProducers | None = None,
        access: TransactionAccess = ALLOW_ALL,
    ) -> None:
        self._ids = ids
        self._access = access
        self._coordinator = coordinator

    async def handle(
        self, caller: Caller, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        """Return an id for a producer; its current id counts only for transactions."""
        refusal = self._refuse(caller, request)
        if refusal is not None:
            return _refused(refusal)
        if request.transactional_id is None:
            try:
                given = await self._ids.next()
            except CoordinatorLoading as fault:
                return _refused(fault.code)
            return InitProducerIdResponse(producer_id=given, producer_epoch=ProducerEpoch(0))
        if not request.transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if self._coordinator is None:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = await self._coordinator.init_producer_id(request)
        if response.error_code == ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION_FIRST:
            response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        return response

    def _refuse(self, caller: Caller, request: InitProducerIdRequest) -> ErrorCode | None:
        transactional_id = request.transactional_id
        if transactional_id is None:
            if not self._access.init_producer(caller):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif not self._access.write_transactional_id(caller, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return None


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
