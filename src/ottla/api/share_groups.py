"""The APIs of share groups (KIP-932): ShareGroupHeartbeat and ShareGroupDescribe."""

import msgspec

from ottla.api.group_access import ALLOW_ALL, GroupAccess
from ottla.api.routes import Caller, Route
from ottla.coordinators.groups.service import Client
from ottla.coordinators.groups.share_service import ShareGroups
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


class ShareGroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    shares: ShareGroups
    access: GroupAccess = ALLOW_ALL

    def routes(self) -> tuple[Route, ...]:
        """Return their part of a client listener's routes."""
        return (
            Route(ApiKey.SHARE_GROUP_HEARTBEAT, self.on_heartbeat),
            Route(ApiKey.SHARE_GROUP_DESCRIBE, self.on_describe),
        )

    async def on_heartbeat(
        self, caller: Caller, request: ShareGroupHeartbeatRequest, version: int
    ) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat; what went wrong is said in words too."""
        try:
            topics = request.subscribed_topic_names or ()
            self.access.check_member(caller, request.group_id, topics)
            client = Client(caller.client_id or "", f"/{caller.peer.host}")
            return await self.shares.heartbeat(request, client)
        except Fault as fault:
            return ShareGroupHeartbeatResponse(error_code=fault.code, error_message=str(fault))

    def on_describe(
        self, caller: Caller, request: ShareGroupDescribeRequest, version: int
    ) -> ShareGroupDescribeResponse:
        """ShareGroupDescribe, as committed."""
        groups = [self._described(caller, group_id, request) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=groups)

    def _described(
        self, caller: Caller, group_id: str, request: ShareGroupDescribeRequest
    ) -> DescribedGroup:
        if not self.access.describe_group(caller, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return DescribedGroup(error_code=code, group_id=group_id)
        if not group_id:
            return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
        try:
            found = self.shares.describe(group_id)
        except Fault as fault:
            return DescribedGroup(fault.code, str(fault), group_id)
        topics = {t.topic_name for m in found.members for t in m.assignment.topic_partitions}
        if not all(self.access.describe_topic(caller, topic) for topic in sorted(topics)):
            return DescribedGroup(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
                group_id,
            )
        if request.include_authorized_operations and found.error_code == ErrorCode.NONE:
            found.authorized_operations = self.access.group_operations(caller, group_id)
        return found
