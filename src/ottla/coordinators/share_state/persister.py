"""Reads and writes the state of share partitions, wherever its coordinator is.

If this node leads the shard of a share partition, it is called directly; otherwise the leader of
the shard gets a request over a connection. The topic is created when it is first needed. Transient
errors (a shard that moves or loads, a broker that is down) are retried for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.coordinators.share_state.rules import StateResult, StateWrite
from ottla.coordinators.share_state.service import ShareCoordinator
from ottla.coordinators.share_state.state import Run, ShareKey, ShareState
from ottla.coordinators.share_state.wire import (
    delete_request,
    initialize_request,
    read_request,
    summary_request,
    write_request,
)
from ottla.coordinators.topics import SHARE_GROUP_STATE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CoordinatorNotAvailable, Fault, ProtocolFault
from ottla.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
from ottla.protocol.messages.initialize_share_group_state import InitializeShareGroupStateResponse
from ottla.protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from ottla.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryResponse,
)
from ottla.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicPartition

Reply = TypeVar("Reply")
Each_co = TypeVar("Each_co", covariant=True)

TRIES_MAX: Final = 12
PAUSE_MS: Final = 50
PAUSE_MS_MAX: Final = 1000

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class SharePersister(msgspec.Struct, frozen=True):
    """The share state for leaders of share partitions and the group coordinator.

    ``leader_of`` returns the leader of a partition, below zero if there is none; ``create`` creates
    an internal topic. Replies carry a code; a `Fault` is raised if there is no reply.
    """

    node_id: int
    local: ShareCoordinator
    links: BrokerLinks
    leader_of: Callable[[TopicPartition], int]
    create: Callable[[str], None]

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> ErrorCode:
        """Initialize a share partition, or reset it."""

        async def remote(broker: int) -> ErrorCode:
            reply = await self._ask(broker, initialize_request(key, state_epoch, start_offset))
            assert isinstance(reply, InitializeShareGroupStateResponse)
            return ErrorCode(_only(reply.results).error_code)

        return await self._tried(
            key, lambda: self.local.initialize(key, state_epoch, start_offset), remote, _same
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> StateResult:
        """Return the state to the leader of ``leader_epoch``, and fence older ones."""

        async def remote(broker: int) -> StateResult:
            reply = await self._ask(broker, read_request(key, leader_epoch))
            assert isinstance(reply, ReadShareGroupStateResponse)
            each = _only(reply.results)
            runs = tuple(
                Run(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
                for b in each.state_batches
            )
            state = ShareState(each.state_epoch, leader_epoch, each.start_offset, runs=runs)
            return StateResult(ErrorCode(each.error_code), state)

        return await self._tried(key, lambda: self.local.read(key, leader_epoch), remote, _code)

    async def write(self, key: ShareKey, write: StateWrite) -> ErrorCode:
        """Store a change; durable when this returns NONE."""

        async def remote(broker: int) -> ErrorCode:
            reply = await self._ask(broker, write_request(key, write))
            assert isinstance(reply, WriteShareGroupStateResponse)
            return ErrorCode(_only(reply.results).error_code)

        return await self._tried(key, lambda: self.local.write(key, write), remote, _same)

    async def delete(self, key: ShareKey) -> ErrorCode:
        """Delete the state of a share partition."""

        async def remote(broker: int) -> ErrorCode:
            reply = await self._ask(broker, delete_request(key))
            assert isinstance(reply, DeleteShareGroupStateResponse)
            return ErrorCode(_only(reply.results).error_code)

        return await self._tried(key, lambda: self.local.delete(key), remote, _same)

    async def summary(self, key: ShareKey) -> StateResult:
        """Return the summary of a share partition's state."""

        async def remote(broker: int) -> StateResult:
            reply = await self._ask(broker, summary_request(key))
            assert isinstance(reply, ReadShareGroupStateSummaryResponse)
            each = _only(reply.results)
            state = ShareState(
                each.state_epoch, each.leader_epoch, each.start_offset, each.delivery_complete_count
            )
            return StateResult(ErrorCode(each.error_code), state)

        return await self._tried(key, lambda: self.local.summary(key), remote, _code)

    # -- the way there -----------------------------------------------------------

    async def _tried(
        self,
        key: ShareKey,
        local: Callable[[], Awaitable[Reply]],
        remote: Callable[[int], Awaitable[Reply]],
        code_of: Callable[[Reply], ErrorCode],
    ) -> Reply:
        """Retry until there is a final reply, or the tries are used up."""
        pause_ms = PAUSE_MS
        for left in range(TRIES_MAX - 1, -1, -1):
            try:
                reply = await self._once(key, local, remote)
                if not left or code_of(reply) not in _PASSING:
                    return reply
            except Fault as fault:
                if not left or fault.code not in _PASSING:
                    raise
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        key: ShareKey,
        local: Callable[[], Awaitable[Reply]],
        remote: Callable[[int], Awaitable[Reply]],
    ) -> Reply:
        index = self.local.runtime.index_of(key.coordinator_key())
        leader = self.leader_of(TopicPartition(SHARE_GROUP_STATE, index))
        if leader == self.node_id:
            return await local()
        if leader < 0:
            self.create(SHARE_GROUP_STATE)
            raise CoordinatorNotAvailable(f"{SHARE_GROUP_STATE} has no leader for {key.group_id}")
        return await remote(leader)

    async def _ask(self, broker: int, request: Message) -> Message:
        try:
            return await self.links.ask(broker, request)
        except UNREACHABLE as error:
            raise CoordinatorNotAvailable(f"broker {broker}: {error}") from error


class _Result(Protocol[Each_co]):
    """One topic of a reply."""

    @property
    def partitions(self) -> Sequence[Each_co]:
        """Its partitions."""
        ...


def _only(results: Sequence[_Result[Each_co]]) -> Each_co:
    """Return the reply for the one share partition of the request."""
    if len(results) != 1 or len(results[0].partitions) != 1:
        raise ProtocolFault("not one share partition in the reply to a request about one")
    return results[0].partitions[0]


def _same(code: ErrorCode) -> ErrorCode:
    return code


def _code(found: StateResult) -> ErrorCode:
    return found.code
