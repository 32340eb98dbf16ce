"""The APIs of share groups (KIP-932): ShareGroupHeartbeat and ShareGroupDescribe."""

import msgspec

from ottla.api.groups.described_groups import Describing
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess, message_of
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.service import Client
from ottla.coordinators.groups.share.service import ShareGroups
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

    async def on_heartbeat(
        self, caller: Caller, request: ShareGroupHeartbeatRequest, version: int
    ) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat; an error has a message, too."""
        try:
            topics = request.subscribed_topic_names or ()
            self.access.check_member(caller, request.group_id, topics)
            client = Client(caller.client_id or "", f"/{caller.peer.host}")
            return await self.shares.heartbeat(request, client)
        except Fault as fault:
            message = message_of(fault)
            return ShareGroupHeartbeatResponse(error_code=fault.code, error_message=message)

    def on_describe(
        self, caller: Caller, request: ShareGroupDescribeRequest, version: int
    ) -> ShareGroupDescribeResponse:
        """ShareGroupDescribe, as committed."""
        describing = Describing(DescribedGroup, self.shares.describe, _topics)
        groups = describing.answer(self.access, caller, request)
        return ShareGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> list[str]:
    """Return every topic that the members read."""
    return sorted(t.topic_name for m in group.members for t in m.assignment.topic_partitions)
