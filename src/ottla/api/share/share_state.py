"""The APIs of the share coordinator, for brokers (KIP-932): Initialize, Read, Write, Delete and
ReadSummary of ShareGroupState.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.routes import Caller
from ottla.coordinators.share_state.rules import StateResult, StateWrite
from ottla.coordinators.share_state.service import ShareCoordinator
from ottla.coordinators.share_state.state import Run, ShareKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ClusterNotAuthorized, Fault
from ottla.protocol.messages import delete_share_group_state as delete
from ottla.protocol.messages import initialize_share_group_state as initialize
from ottla.protocol.messages import read_share_group_state as read
from ottla.protocol.messages import read_share_group_state_summary as summary
from ottla.protocol.messages import write_share_group_state as write
from ottla.protocol.types import Uuid

Part_co = TypeVar("Part_co", bound="_Part", covariant=True)
Done = TypeVar("Done")


class _Part(Protocol):
    """A partition of a request."""

    @property
    def partition(self) -> int:
        """Its number."""
        ...


class _Topic(Protocol[Part_co]):
    """A topic of a request."""

    @property
    def topic_id(self) -> Uuid:
        """Its id."""
        ...

    @property
    def partitions(self) -> Sequence[Part_co]:
        """Its partitions."""
        ...


class ShareStateHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    coordinator: ShareCoordinator
    access: GroupAccess = ALLOW_ALL

    def _check(self, caller: Caller) -> None:
        if not self.access.cluster_action(caller):
            raise ClusterNotAuthorized(f"{caller.principal} is not a broker of this cluster")

    async def on_initialize(
        self, caller: Caller, request: initialize.InitializeShareGroupStateRequest, version: int
    ) -> initialize.InitializeShareGroupStateResponse:
        """InitializeShareGroupState."""
        self._check(caller)

        async def one(key: ShareKey, part: initialize.PartitionData) -> initialize.PartitionResult:
            code = await _code(
                self.coordinator.initialize(key, part.state_epoch, part.start_offset)
            )
            return initialize.PartitionResult(key.partition, code, _said(code))

        done = await _each(request.group_id, request.topics, one)
        return initialize.InitializeShareGroupStateResponse(
            [initialize.InitializeStateResult(*each) for each in done]
        )

    async def on_read(
        self, caller: Caller, request: read.ReadShareGroupStateRequest, version: int
    ) -> read.ReadShareGroupStateResponse:
        """ReadShareGroupState."""
        self._check(caller)

        async def one(key: ShareKey, part: read.PartitionData) -> read.PartitionResult:
            found = await _found(self.coordinator.read(key, part.leader_epoch))
            if found.code is not ErrorCode.NONE:
                return read.PartitionResult(key.partition, found.code, _said(found.code))
            state = found.state
            return read.PartitionResult(
                partition=key.partition,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[read.StateBatch(*run) for run in state.runs],
            )

        done = await _each(request.group_id, request.topics, one)
        return read.ReadShareGroupStateResponse([read.ReadStateResult(*each) for each in done])

    async def on_write(
        self, caller: Caller, request: write.WriteShareGroupStateRequest, version: int
    ) -> write.WriteShareGroupStateResponse:
        """WriteShareGroupState."""
        self._check(caller)

        async def one(key: ShareKey, part: write.PartitionData) -> write.PartitionResult:
            runs = tuple(
                Run(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in part.state_batches
            )
            wanted = StateWrite(
                part.state_epoch,
                part.leader_epoch,
                part.start_offset,
                part.delivery_complete_count,
                runs,
            )
            code = await _code(self.coordinator.write(key, wanted))
            return write.PartitionResult(key.partition, code, _said(code))

        done = await _each(request.group_id, request.topics, one)
        return write.WriteShareGroupStateResponse([write.WriteStateResult(*each) for each in done])

    async def on_delete(
        self, caller: Caller, request: delete.DeleteShareGroupStateRequest, version: int
    ) -> delete.DeleteShareGroupStateResponse:
        """DeleteShareGroupState."""
        self._check(caller)

        async def one(key: ShareKey, part: delete.PartitionData) -> delete.PartitionResult:
            code = await _code(self.coordinator.delete(key))
            return delete.PartitionResult(key.partition, code, _said(code))

        done = await _each(request.group_id, request.topics, one)
        return delete.DeleteShareGroupStateResponse(
            [delete.DeleteStateResult(*each) for each in done]
        )

    async def on_summary(
        self, caller: Caller, request: summary.ReadShareGroupStateSummaryRequest, version: int
    ) -> summary.ReadShareGroupStateSummaryResponse:
        """ReadShareGroupStateSummary."""
        self._check(caller)

        async def one(key: ShareKey, part: summary.PartitionData) -> summary.PartitionResult:
            found = await _found(self.coordinator.summary(key))
            if found.code is not ErrorCode.NONE:
                return summary.PartitionResult(key.partition, found.code, _said(found.code))
            state = found.state
            return summary.PartitionResult(
                partition=key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )

        done = await _each(request.group_id, request.topics, one)
        return summary.ReadShareGroupStateSummaryResponse(
            [summary.ReadStateSummaryResult(*each) for each in done]
        )


async def _each(
    group_id: str,
    topics: Iterable[_Topic[Part_co]],
    one: Callable[[ShareKey, Part_co], Awaitable[Done]],
) -> list[tuple[Uuid, list[Done]]]:
    """Serve every partition of a request concurrently; none without a group id.

    Each topic and each partition has one row, with the last result, however often it is listed. A
    topic without partitions has none.
    """
    asked = [
        (ShareKey(group_id, topic.topic_id, part.partition), part)
        for topic in (topics if group_id else ())
        for part in topic.partitions
    ]
    answers = await asyncio.gather(*(one(key, part) for key, part in asked))
    done: dict[Uuid, dict[int, Done]] = {}
    for (key, _), answer in zip(asked, answers, strict=True):
        done.setdefault(key.topic_id, {})[key.partition] = answer
    return [(topic_id, list(parts.values())) for topic_id, parts in done.items()]


async def _code(asked: Awaitable[ErrorCode]) -> ErrorCode:
    try:
        return await asked
    except Fault as fault:
        return fault.code


async def _found(asked: Awaitable[StateResult]) -> StateResult:
    try:
        return await asked
    except Fault as fault:
        return StateResult(fault.code)


def _said(code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else code.name
