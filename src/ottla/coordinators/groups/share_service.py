"""The share groups of a broker, as the wire asks for them.

A partition that a group comes to read needs state at the share coordinator first (KIP-932): it
is initialized while the heartbeat waits, so that the member gets it with this reply already.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.service import Client, GroupCoordinator
from ottla.coordinators.groups.share_describing import describe_share_group
from ottla.coordinators.groups.share_group import NO_PLACES, Places, ShareGroup
from ottla.coordinators.groups.share_heartbeat import (
    Beat,
    Beaten,
    check_share_heartbeat,
    decide_initialized,
    decide_share_heartbeat,
)
from ottla.coordinators.groups.share_kind import share_kind
from ottla.coordinators.share_state.rules import Found
from ottla.coordinators.share_state.state import UNINITIALIZED, ShareKey
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.share_group_describe import DescribedGroup
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.types import Millis, Uuid

log = logging.getLogger(__name__)


class StateKeeper(Protocol):
    """What the state of share partitions is kept by. Raises a `Fault` where nobody answers."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> ErrorCode:
        """Begin a share partition, or begin it anew."""
        ...

    async def delete(self, key: ShareKey) -> ErrorCode:
        """End a share partition."""
        ...

    async def summary(self, key: ShareKey) -> Found:
        """Return where a share partition is."""
        ...


class ShareGroups(msgspec.Struct, frozen=True):
    """Finds the shard of a group and has it decide; faults are raised."""

    groups: GroupCoordinator
    keeper: StateKeeper
    image: Callable[[], Image]
    initializing: set[str] = msgspec.field(default_factory=set)

    async def _decided(
        self, group_id: str, decide: Callable[[GroupMachine, Millis], Decision]
    ) -> Any:  # noqa: ANN401 - each request has a reply of its own
        answered = self.groups.runtime.submit(
            self.groups.index_of(group_id), lambda machine, now, ticket: decide(machine, now)
        )
        return await answered if inspect.isawaitable(answered) else answered

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat."""
        check_share_heartbeat(request)
        beaten = await self._beat(Beat(request, client.client_id, client.host))
        if not beaten.pending or request.group_id in self.initializing:
            return beaten.response
        self.initializing.add(request.group_id)
        try:
            done = await self._initialize(request.group_id, beaten)
        finally:
            self.initializing.discard(request.group_id)
        if not done:
            return beaten.response
        return await self._told_again(request, client, beaten.response)

    async def _beat(self, beat: Beat) -> Beaten:
        beaten: Beaten = await self._decided(
            beat.request.group_id,
            lambda machine, now: decide_share_heartbeat(share_kind(machine).context, machine, beat),
        )
        return beaten

    async def _initialize(self, group_id: str, beaten: Beaten) -> bool:
        """Have what is pending initialized; return whether some of it is now."""
        places = sorted(beaten.pending)
        codes = await asyncio.gather(
            *(self._initialized(ShareKey(group_id, *each), beaten.state_epoch) for each in places)
        )
        done = frozenset(
            place for place, code in zip(places, codes, strict=True) if code is ErrorCode.NONE
        )
        if done:
            await self._decided(
                group_id,
                lambda machine, now: decide_initialized(
                    share_kind(machine).context, machine, group_id, done
                ),
            )
        return bool(done)

    async def _initialized(self, key: ShareKey, state_epoch: int) -> ErrorCode:
        try:
            code = await self.keeper.initialize(key, state_epoch, UNINITIALIZED)
        except Fault as fault:
            code = fault.code
        if code is not ErrorCode.NONE:
            log.warning("share partition not initialized key=%s code=%s", key, code.name)
        return code

    async def _told_again(
        self,
        request: ShareGroupHeartbeatRequest,
        client: Client,
        response: ShareGroupHeartbeatResponse,
    ) -> ShareGroupHeartbeatResponse:
        """Return the reply with what has become readable since."""
        again = replace(request, member_epoch=response.member_epoch, subscribed_topic_names=None)
        beaten = await self._beat(Beat(again, client.client_id, client.host))
        if beaten.response.assignment is None:
            beaten.response.assignment = response.assignment
        return beaten.response

    # -- reading ---------------------------------------------------------------

    def _view(self, group_id: str) -> GroupsView:
        view = self.groups.runtime.shard(self.groups.index_of(group_id)).committed()
        assert isinstance(view, GroupsView)
        return view

    def group(self, group_id: str) -> ShareGroup | None:
        """Return a share group as it is committed."""
        group = self._view(group_id).groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe one share group as it is committed."""
        return describe_share_group(self._view(group_id), group_id, self.image())

    def places(self, group_id: str, topic_id: Uuid) -> Places:
        """Return the partitions of a topic whose state a group has."""
        group = self.group(group_id)
        if group is None:
            return NO_PLACES
        return frozenset(place for place in group.initialized if place[0] == topic_id)
