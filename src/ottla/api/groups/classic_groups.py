"""The APIs of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, Describe, List, Delete.

Where this broker does not coordinate the group, the handler raises a fault, and `error_reply` makes
the response as Kafka's own request classes do.
"""

import asyncio
from typing import Final

import msgspec

from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.replies import Steps, collect
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.classic.join import Joining, check_join, new_member_id
from ottla.coordinators.groups.classic.rebalance import join_refused
from ottla.coordinators.groups.describe import describe_group, list_groups
from ottla.coordinators.groups.requests import (
    decide_delete_groups,
    decide_heartbeat,
    decide_leave,
    decide_sync,
)
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CoordinatorLoading, Fault, NotAuthorized
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.uuids import uuid_text
from ottla.runtime.pending import Pending, completed

# The first version in which the protocol name may be null.
_NULL_PROTOCOL_NAME_SINCE: Final = 7
# The first version in which a member sends the protocol it syncs for.
_PROTOCOL_NAMED_SINCE: Final = 5
# The first version in which several members leave at once, each with its own error code.
_LEAVE_BATCH_SINCE: Final = 3


class GroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    groups: GroupCoordinator
    access: GroupAccess = ALLOW_ALL

    def _check_read(self, caller: Caller, group_id: str) -> None:
        if not self.access.read_group(caller, group_id):
            raise NotAuthorized(f"{caller.principal} may not read group {group_id!r}")

    def on_join(
        self, caller: Caller, request: JoinGroupRequest, version: int
    ) -> Pending[JoinGroupResponse]:
        """JoinGroup; the reply comes with the next generation."""
        self._check_read(caller, request.group_id)
        named = _nullable if version >= _NULL_PROTOCOL_NAME_SINCE else _named
        return self._join(caller, request, version).map(named)

    def _join(
        self, caller: Caller, request: JoinGroupRequest, version: int
    ) -> Pending[JoinGroupResponse]:
        code = check_join(request, self.groups.settings)
        if code is not ErrorCode.NONE:
            return completed(join_refused(code, request.member_id))
        client_id, host = caller.client_id or "", f"/{caller.peer.host}"
        uuid = self.groups.random.uuid()
        ids = new_member_id(request.group_instance_id or client_id, uuid), uuid_text(uuid)
        return self.groups.runtime.write_deferred(
            request.group_id,
            lambda machine, now, future: machine.join_classic(
                Joining(request, version, client_id, host, *ids, future), now
            ),
        )

    def on_sync(
        self, caller: Caller, request: SyncGroupRequest, version: int
    ) -> SyncGroupResponse | Pending[SyncGroupResponse]:
        """SyncGroup; the reply comes with the leader's assignment."""
        is_named = request.protocol_type is not None and request.protocol_name is not None
        if version >= _PROTOCOL_NAMED_SINCE and not is_named:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._check_read(caller, request.group_id)
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.groups.runtime.write_deferred(
            request.group_id,
            lambda machine, now, future: decide_sync(machine, request, future, now),
        )

    def on_heartbeat(
        self, caller: Caller, request: HeartbeatRequest, version: int
    ) -> HeartbeatResponse | Pending[HeartbeatResponse]:
        """Heartbeat; succeeds while the group is being loaded, so that its members stay."""
        self._check_read(caller, request.group_id)
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        reply: Pending[HeartbeatResponse] = self.groups.runtime.write(
            request.group_id, lambda machine, now: decide_heartbeat(machine, request, now)
        )
        return reply.map(lambda response: response, _beating)

    def on_leave(
        self, caller: Caller, request: LeaveGroupRequest, version: int
    ) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
        """LeaveGroup, of one member before version 3."""
        self._check_read(caller, request.group_id)
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        is_batch = version >= _LEAVE_BATCH_SINCE
        if not is_batch:
            request.members = [MemberIdentity(request.member_id)]
        reply: Pending[LeaveGroupResponse] = self.groups.runtime.write(
            request.group_id, lambda machine, now: decide_leave(machine, request, now)
        )
        return reply if is_batch else reply.map(_single)

    # -- groups as a whole -------------------------------------------------------

    def describe_steps(
        self, caller: Caller, request: DescribeGroupsRequest, version: int
    ) -> Steps[DescribeGroupsResponse]:
        """DescribeGroups, of classic groups."""
        groups = (
            self._described(caller, group_id, request, version) for group_id in request.groups
        )
        return DescribeGroupsResponse(
            groups=(yield from collect(groups, lambda group: 1 + len(group.members)))
        )

    def _described(
        self, caller: Caller, group_id: str, request: DescribeGroupsRequest, version: int
    ) -> DescribedGroup:
        if not self.access.describe_group(caller, group_id):
            return DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id)
        try:
            found = describe_group(self.groups.runtime.read(group_id), group_id, version)
        except Fault as fault:
            return DescribedGroup(fault.code, None, group_id)
        if request.include_authorized_operations and found.error_code == ErrorCode.NONE:
            found.authorized_operations = self.access.group_operations(caller, group_id)
        return found

    def on_list(
        self, caller: Caller, request: ListGroupsRequest, version: int
    ) -> Steps[ListGroupsResponse]:
        """ListGroups of this coordinator; an incomplete list has an error code."""
        if self.groups.runtime.is_loading():
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        sees_all = self.access.describe_cluster(caller)
        groups: list[ListedGroup] = []
        for view in self.groups.runtime.views():
            yield
            listed = iter(list_groups(view, request.states_filter, request.types_filter))
            if not sees_all:
                listed = (
                    group for group in listed if self.access.describe_group(caller, group.group_id)
                )
            groups += yield from collect(listed)
        return ListGroupsResponse(groups=groups)

    async def on_delete(
        self, caller: Caller, request: DeleteGroupsRequest, version: int
    ) -> DeleteGroupsResponse:
        """DeleteGroups, shard by shard."""
        results: list[DeletableGroupResult] = []
        shards: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            if self.access.delete_group(caller, group_id):
                shards.setdefault(self.groups.runtime.index_of(group_id), []).append(group_id)
            else:
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                results.append(DeletableGroupResult(group_id, code))
        for found in await asyncio.gather(*map(self._delete, shards.values())):
            results.extend(found)
        return DeleteGroupsResponse(results=results)

    async def _delete(self, group_ids: list[str]) -> list[DeletableGroupResult]:
        """Delete the groups of one shard, except those whose other state cannot be deleted now."""
        try:
            codes = await asyncio.gather(*map(self.groups.prepare_delete, group_ids))
            refused = [
                DeletableGroupResult(group_id, code)
                for group_id, code in zip(group_ids, codes, strict=True)
                if code is not ErrorCode.NONE
            ]
            left = [each for each in group_ids if each not in {row.group_id for row in refused}]
            deleted: list[DeletableGroupResult] = []
            if left:
                deleted = await self.groups.runtime.write(
                    left[0], lambda machine, now: decide_delete_groups(machine, left)
                )
        except Fault as fault:
            return [DeletableGroupResult(group_id, fault.code) for group_id in group_ids]
        return refused + deleted


def _named(reply: JoinGroupResponse) -> JoinGroupResponse:
    reply.protocol_name = reply.protocol_name or ""
    return reply


def _nullable(reply: JoinGroupResponse) -> JoinGroupResponse:
    """Return a reply in which no protocol is null, as in all rejections."""
    reply.protocol_name = reply.protocol_name or None
    return reply


def _beating(fault: Fault) -> HeartbeatResponse:
    if isinstance(fault, CoordinatorLoading):
        return HeartbeatResponse()
    raise fault


def _single(reply: LeaveGroupResponse) -> LeaveGroupResponse:
    if reply.members and reply.error_code == ErrorCode.NONE:
        reply.error_code = reply.members[0].error_code
    return reply
