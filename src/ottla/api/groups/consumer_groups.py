"""The APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.groups.described_groups import Describing
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess, message_of
from ottla.api.surface.replies import Handled, Reply, Steps
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.consumer.describe import describe_consumer_group
from ottla.coordinators.groups.consumer.heartbeat import (
    Heartbeat,
    check_heartbeat,
    decide_consumer_heartbeat,
)
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.regex import Matches, MatchingTakesLong, match_steps
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.epoch_group.enabled import check_enabled
from ottla.coordinators.groups.service import GroupCoordinator
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
from ottla.runtime.pending import Pending

MATCHES_MAX: Final = 5
"""How often the expressions of a group are matched for one heartbeat."""


class ConsumerGroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    groups: GroupCoordinator
    settings: ConsumerSettings
    image: Callable[[], Image]
    access: GroupAccess = ALLOW_ALL

    def on_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> Handled:
        """ConsumerGroupHeartbeat; an error has a message, too."""
        matches = Matches()

        def ask() -> Pending[ConsumerGroupHeartbeatResponse]:
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
                matches,
            )
            return self.groups.runtime.write(
                request.group_id,
                lambda machine, now: decide_consumer_heartbeat(
                    machine.kind(ConsumerKind).context, machine, heartbeat, now
                ),
            )

        try:
            return _reply_to(ask)
        except MatchingTakesLong as fault:
            return _match_and_ask(ask, matches, fault)

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


def _match_and_ask(
    ask: Callable[[], Pending[ConsumerGroupHeartbeatResponse]],
    matches: Matches,
    fault: MatchingTakesLong,
) -> Steps[Reply]:
    """Match the expressions of a group in steps, and then decide about the heartbeat.

    Topics and members may change meanwhile; then it is done again, but not often.
    """
    for _ in range(MATCHES_MAX):
        if matches.names is not fault.names:
            matches.names, matches.found = fault.names, {}
        for expression in fault.expressions:
            matches.found[expression] = yield from match_steps(expression, fault.names)
        try:
            return _reply_to(ask)
        except MatchingTakesLong as again:
            fault = again
    return _refused(fault)


def _reply_to(ask: Callable[[], Pending[ConsumerGroupHeartbeatResponse]]) -> Reply:
    """Return the reply, with a fault as its error. Raises MatchingTakesLong."""
    try:
        reply = ask()
        if reply.is_done:
            return reply.outcome()
    except MatchingTakesLong:
        raise
    except Fault as fault:
        return _refused(fault)
    return reply.map(lambda response: response, _refused)


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
