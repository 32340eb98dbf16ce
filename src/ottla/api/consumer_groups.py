"""The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Callable

import msgspec

from ottla.api.described_groups import Describing
from ottla.api.group_access import ALLOW_ALL, GroupAccess, message_of
from ottla.api.groups import asked
from ottla.api.routes import Caller
from ottla.coordinators.groups.consumer.describe import describe_consumer_group
from ottla.coordinators.groups.consumer.heartbeat import (
    Heartbeat,
    check_heartbeat,
    decide_consumer_heartbeat,
)
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.epoch_group.enabled import check_enabled
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.runtime import Answered
from ottla.metadata.features import GROUP_VERSION
from ottla.metadata.image import Image
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
from ottla.protocol.uuids import uuid_text


class ConsumerGroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    groups: GroupCoordinator
    settings: ConsumerSettings
    image: Callable[[], Image]
    access: GroupAccess = ALLOW_ALL

    def on_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> Answered[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat; an error has a message, too."""

        def ask() -> Answered[ConsumerGroupHeartbeatResponse]:
            topics = request.subscribed_topic_names or ()
            self.access.check_member(caller, request.group_id, topics)
            self._check_enabled()
            check_heartbeat(request, version, self.settings.assignors)
            heartbeat = Heartbeat(
                request,
                caller.client_id or "",
                f"/{caller.peer.host}",
                "" if request.member_id else uuid_text(self.groups.random.uuid()),
                lambda topic: self.access.describe_topic(caller, topic),
            )
            return self.groups.runtime.write(
                request.group_id,
                lambda machine, now: decide_consumer_heartbeat(
                    machine.kind(ConsumerKind).context, machine, heartbeat, now
                ),
            )

        return asked(ask, lambda reply: reply, _refused)

    def on_describe(
        self, caller: Caller, request: ConsumerGroupDescribeRequest, version: int
    ) -> ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe, as committed."""
        describing = Describing(DescribedGroup, self._describe, _topics)
        groups = describing.answer(self.access, caller, request)
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str) -> DescribedGroup:
        self._check_enabled()
        view = self.groups.runtime.read(group_id)
        return describe_consumer_group(view, group_id, self.image(), self.settings.assignors[0])

    def _check_enabled(self) -> None:
        check_enabled("consumer", GROUP_VERSION, self.image(), is_served=self.settings.is_served)


def _topics(group: DescribedGroup) -> list[str]:
    """Return every topic of the members' current and target assignments."""
    return sorted(
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _refused(fault: Fault) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=fault.code, error_message=message_of(fault))
