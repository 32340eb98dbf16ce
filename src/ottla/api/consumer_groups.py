"""The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

import msgspec

from ottla.api.described_groups import Describing
from ottla.api.group_access import ALLOW_ALL, GroupAccess
from ottla.api.groups import asked
from ottla.api.routes import Caller
from ottla.coordinators.groups.consumer.service import ConsumerGroups
from ottla.coordinators.groups.service import Answered, Client
from ottla.protocol.faults import Fault
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    consumers: ConsumerGroups
    access: GroupAccess = ALLOW_ALL

    def on_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> Answered[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat; what went wrong is said in words too."""

        def ask() -> Answered[ConsumerGroupHeartbeatResponse]:
            topics = request.subscribed_topic_names or ()
            self.access.check_member(caller, request.group_id, topics)
            client = Client(caller.client_id or "", f"/{caller.peer.host}")
            return self.consumers.heartbeat(
                request, version, client, lambda topic: self.access.describe_topic(caller, topic)
            )

        return asked(ask, lambda reply: reply, _refused)

    def on_describe(
        self, caller: Caller, request: ConsumerGroupDescribeRequest, version: int
    ) -> ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe, as committed."""
        describing = Describing(DescribedGroup, self.consumers.describe, _topics)
        groups = describing.answer(self.access, caller, request)
        return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> list[str]:
    """Return every topic that the members read or shall read."""
    return sorted(
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _refused(fault: Fault) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=fault.code, error_message=str(fault))
