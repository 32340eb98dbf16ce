"""The share groups of a broker: requests that involve state at the share coordinator.

A partition that a group starts to read needs state at the share coordinator first (KIP-932): it is
initialized while the heartbeat waits, so that this reply already contains the partition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.errors import GroupIdNotFound, GroupNotEmpty, InvalidGroupId
from ottla.coordinators.groups.machine import GroupsView
from ottla.coordinators.groups.service import Client, GroupCoordinator
from ottla.coordinators.groups.share.describe import describe_share_group
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import (
    Heartbeat,
    HeartbeatResult,
    check_share_heartbeat,
    decide_initialized,
    decide_reset,
    decide_share_heartbeat,
    decide_uninitialized,
)
from ottla.coordinators.groups.share.kind import ShareKind
from ottla.coordinators.share_state.rules import StateResult
from ottla.coordinators.share_state.state import UNINITIALIZED, ShareKey
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.share_group_describe import DescribedGroup
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.types import TopicIdPartition, Uuid

log = logging.getLogger(__name__)


INITIALIZE_MS: Final = 5000
"""How long a heartbeat waits for state to be initialized; the next heartbeat retries the rest."""


class StateKeeper(Protocol):
    """Stores the state of share partitions. Raises a `Fault` if the coordinator does not answer."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> ErrorCode:
        """Initialize a share partition, or reset it."""
        ...

    async def delete(self, key: ShareKey) -> ErrorCode:
        """Delete the state of a share partition."""
        ...

    async def summary(self, key: ShareKey) -> StateResult:
        """Return the summary of a share partition's state."""
        ...


class ShareGroups(msgspec.Struct, frozen=True):
    """Share groups and the state of their partitions; faults are raised."""

    groups: GroupCoordinator
    keeper: StateKeeper
    image: Callable[[], Image]
    initializing: set[str] = msgspec.field(default_factory=set)

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat."""
        check_share_heartbeat(request)
        result = await self._decide_heartbeat(Heartbeat(request, client.client_id, client.host))
        if not result.pending or request.group_id in self.initializing:
            return result.response
        self.initializing.add(request.group_id)
        done = False
        try:
            async with asyncio.timeout(INITIALIZE_MS / 1000):
                done = await self._initialize(request.group_id, result)
        except TimeoutError:
            log.warning("share partitions not initialized in time group=%s", request.group_id)
        finally:
            self.initializing.discard(request.group_id)
        if not done:
            return result.response
        return await self._with_initialized(request, client, result.response)

    async def _decide_heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResult:
        result: HeartbeatResult = await self.groups.runtime.write(
            heartbeat.request.group_id,
            lambda machine, now: decide_share_heartbeat(
                machine.kind(ShareKind).context, machine, heartbeat
            ),
        )
        return result

    async def _initialize(self, group_id: str, result: HeartbeatResult) -> bool:
        """Initialize the pending partitions; return whether any of them succeeded."""
        places = sorted(result.pending)
        codes = await asyncio.gather(
            *(
                self._initialized(ShareKey(group_id, *each), result.state_epoch, UNINITIALIZED)
                for each in places
            )
        )
        done = frozenset(
            place for place, code in zip(places, codes, strict=True) if code is ErrorCode.NONE
        )
        if done:
            await self.groups.runtime.write(
                group_id,
                lambda machine, now: decide_initialized(
                    machine.kind(ShareKind).context, machine, group_id, done
                ),
            )
        return bool(done)

    async def _initialized(self, key: ShareKey, state_epoch: int, start: int) -> ErrorCode:
        try:
            code = await self.keeper.initialize(key, state_epoch, start)
            if code is ErrorCode.FENCED_STATE_EPOCH:
                # Left over from a deleted group of this name: use a higher state epoch.
                left = await self.keeper.summary(key)
                epoch = left.state.state_epoch + 1
                code = await self.keeper.initialize(key, epoch, start)
        except Fault as fault:
            code = fault.code
        if code is not ErrorCode.NONE:
            log.warning("share partition not initialized key=%s code=%s", key, code.name)
        return code

    async def _with_initialized(
        self,
        request: ShareGroupHeartbeatRequest,
        client: Client,
        response: ShareGroupHeartbeatResponse,
    ) -> ShareGroupHeartbeatResponse:
        """Return the reply with the partitions that have become readable since."""
        again = replace(request, member_epoch=response.member_epoch, subscribed_topic_names=None)
        result = await self._decide_heartbeat(Heartbeat(again, client.client_id, client.host))
        if result.response.assignment is None:
            result.response.assignment = response.assignment
        return result.response

    # -- reading ---------------------------------------------------------------

    def _view(self, group_id: str) -> GroupsView:
        view: GroupsView = self.groups.runtime.read(group_id)
        return view

    def group(self, group_id: str) -> ShareGroup | None:
        """Return a share group from the committed view."""
        group = self._view(group_id).groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe one share group from the committed view."""
        return describe_share_group(self._view(group_id), group_id, self.image())

    async def summary(self, key: ShareKey) -> StateResult:
        """Return the summary of a share partition; a fault becomes the code of the reply."""
        try:
            return await self.keeper.summary(key)
        except Fault as fault:
            return StateResult(fault.code)

    # -- resetting ---------------------------------------------------------------

    def check_reset(self, group_id: str, *, may_create: bool = False) -> ShareGroup:
        """Return a share group whose offsets may be changed: one without members.

        With ``may_create`` a missing group is allowed, too; nothing is written yet.
        """
        if not group_id:
            raise InvalidGroupId("The group id must not be empty.")
        group = self._view(group_id).groups.get(group_id)
        if group is None and may_create:
            return ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a share group.")
        if not group.is_empty():
            raise GroupNotEmpty(f"Group {group_id} has members.")
        return group

    async def alter(
        self, group_id: str, starts: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Reset share partitions to other offsets. Raises as `check_reset`.

        Creates a missing group if any partition could be initialized.
        """
        group = self.check_reset(group_id, may_create=True)
        codes = await self._for_each(
            group_id,
            starts,
            lambda key, place: self._initialized(key, group.epoch + 1, starts[place]),
        )
        done = frozenset(place for place, code in codes.items() if code is ErrorCode.NONE)
        if done:
            await self.groups.runtime.write(
                group_id,
                lambda machine, now: decide_reset(
                    machine.kind(ShareKind).context, machine, group_id, done
                ),
            )
        return codes

    async def delete(self, group_id: str, topic_ids: Iterable[Uuid]) -> dict[Uuid, ErrorCode]:
        """Delete the offsets of a group in topics. Raises as `check_reset`.

        UNKNOWN_TOPIC_OR_PARTITION: the group has no offsets in the topic.
        """
        group = self.check_reset(group_id)
        wanted = dict.fromkeys(topic_ids, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        places = sorted(place for place in group.initialized if place[0] in wanted)
        wanted.update((topic_id, ErrorCode.NONE) for topic_id, _ in places)
        codes = await self._end(group_id, places)
        for (topic_id, _), code in codes.items():
            wanted[topic_id] = wanted[topic_id] or code
        return wanted

    async def delete_state(self, group_id: str) -> ErrorCode:
        """Delete all state of a share group that is to be deleted; NONE for any other group.

        A group with members is not changed. State that could not be deleted stays with the group,
        so that the deletion can be retried.
        """
        group = self.group(group_id)
        if group is None or not group.is_empty():
            return ErrorCode.NONE
        codes = await self._end(group_id, sorted(group.initialized))
        return next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)

    async def _end(
        self, group_id: str, places: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Delete the state of share partitions, and note which of them have none now."""
        codes = await self._for_each(group_id, places, lambda key, place: self.keeper.delete(key))
        gone = frozenset(place for place, code in codes.items() if code is ErrorCode.NONE)
        if gone:
            await self.groups.runtime.write(
                group_id,
                lambda machine, now: decide_uninitialized(
                    machine.kind(ShareKind).context, machine, group_id, gone
                ),
            )
        return codes

    async def _for_each(
        self,
        group_id: str,
        places: Iterable[TopicIdPartition],
        ask: Callable[[ShareKey, TopicIdPartition], Awaitable[ErrorCode]],
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Send a request for each share partition, all at once.

        A fault becomes the code of its own.
        """

        async def one(place: TopicIdPartition) -> ErrorCode:
            try:
                return await ask(ShareKey(group_id, *place), place)
            except Fault as fault:
                return fault.code

        listed = list(places)
        codes = await asyncio.gather(*map(one, listed))
        return dict(zip(listed, codes, strict=True))
