"""The APIs of streams groups (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

import msgspec

from ottla.api.groups.described_groups import Describing
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess, May, everybody, message_of
from ottla.api.surface.item_limits import TooManyItems, has_long_list
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.epoch_group.enabled import check_enabled
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.streams.describe import describe_streams_group
from ottla.coordinators.groups.streams.heartbeat import (
    StreamsHeartbeat,
    check_streams_heartbeat,
    decide_streams_heartbeat,
)
from ottla.coordinators.groups.streams.kind import StreamsKind
from ottla.coordinators.groups.streams.reply import StreamsHeartbeatResult
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.groups.streams.topics import Status as Code
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.metadata.features import STREAMS_VERSION
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages import streams_group_describe, streams_group_heartbeat
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ottla.runtime.pending import Pending

# Topic creation errors listed in a status at most.
_REPORTED_MAX: Final = 3
TOPOLOGY_MAX: Final = 2000
"""Subtopologies, or topics of a kind, of one topology: it is checked and its topics are created in
one turn each."""
_NOT_STORED: Final = 1
"""The status of a topology description that nobody has stored."""
# Heartbeats for which an error is reported before the topic is requested again.
_HEARTBEATS_KEPT: Final = 2


class Topics(Protocol):
    """Creates internal topics."""

    def want(self, caller: Caller, topics: Iterable[InternalTopic], keep_ms: int) -> None:
        """Request topics without waiting; keep an error for ``keep_ms``."""
        ...

    def failures(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the recent creation errors of topics."""
        ...


class StreamsGroupHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker. ``may_create``: whether a caller may create a topic."""

    groups: GroupCoordinator
    settings: StreamsSettings
    image: Callable[[], Image]
    topics: Topics
    access: GroupAccess = ALLOW_ALL
    may_create: May = everybody

    def on_heartbeat(
        self, caller: Caller, request: StreamsGroupHeartbeatRequest, version: int
    ) -> StreamsGroupHeartbeatResponse | Pending[StreamsGroupHeartbeatResponse]:
        """StreamsGroupHeartbeat; an error has a message, too."""
        try:
            self._check_heartbeat(caller, request)
        except Fault as fault:
            return _refused(fault)
        heartbeat = StreamsHeartbeat(request, caller.client_id or "", f"/{caller.peer.host}")
        reply: Pending[StreamsHeartbeatResult] = self.groups.runtime.write(
            request.group_id,
            lambda machine, now: decide_streams_heartbeat(
                machine.kind(StreamsKind).context, machine, heartbeat
            ),
        )
        return reply.map(lambda result: self._answered(caller, result), _refused)

    def _check_heartbeat(self, caller: Caller, request: StreamsGroupHeartbeatRequest) -> None:
        topology = request.topology
        if topology is not None and has_long_list(topology, TOPOLOGY_MAX):
            raise TooManyItems(f"A topology may name at most {TOPOLOGY_MAX} things of a kind.")
        self.access.check_member(
            caller, request.group_id, () if topology is None else _topics(topology.subtopologies)
        )
        self._check_enabled()
        check_streams_heartbeat(request)

    def _answered(
        self, caller: Caller, result: StreamsHeartbeatResult
    ) -> StreamsGroupHeartbeatResponse:
        """Request missing topics, and report those that cannot be created in the status."""
        response, missing = result
        if not missing:
            return response
        forbidden = [each.name for each in missing if not self.may_create(caller, each.name)]
        if forbidden:
            _tell(response, f"Unauthorized to CREATE on topics {', '.join(forbidden)}.")
            return response
        self.topics.want(caller, missing, response.heartbeat_interval_ms * _HEARTBEATS_KEPT)
        failed = self.topics.failures(each.name for each in missing)
        if failed:
            updated = [f"{name} ({why})" for name, why in islice(failed.items(), _REPORTED_MAX)]
            rest = len(failed) - len(updated)
            more = f" and {rest} more" if rest else ""
            _tell(response, f"Creation failed: {', '.join(updated)}{more}.")
        return response

    def on_describe(
        self, caller: Caller, request: StreamsGroupDescribeRequest, version: int
    ) -> StreamsGroupDescribeResponse:
        """StreamsGroupDescribe, as committed."""
        describing = Describing(
            DescribedGroup,
            self._describe,
            lambda group: (
                () if group.topology is None else _topics(group.topology.subtopologies or ())
            ),
            "The described group uses topics that the client is not authorized to describe.",
        )
        groups = describing.answer(self.access, caller, request)
        if request.include_topology_description:
            for group in groups:
                group.topology_description_status = _NOT_STORED
        return StreamsGroupDescribeResponse(groups=groups)

    def on_topology_description(
        self, caller: Caller, request: StreamsGroupTopologyDescriptionUpdateRequest, version: int
    ) -> StreamsGroupTopologyDescriptionUpdateResponse:
        """Reject a topology description, as Kafka does without a plugin that stores it (KIP-1331).

        Members do not send one unless a heartbeat asks for it, and none does.
        """
        try:
            self.access.check_member(caller, request.group_id, ())
        except Fault as fault:
            return StreamsGroupTopologyDescriptionUpdateResponse(
                error_code=fault.code, error_message=message_of(fault)
            )
        return StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="No topology description plugin is configured on the broker.",
        )

    def _describe(self, group_id: str) -> DescribedGroup:
        self._check_enabled()
        topics = self.image().topics

        def count_of(name: str) -> int | None:
            topic = topics.named(name)
            return None if topic is None else len(topic.partitions)

        return describe_streams_group(self.groups.runtime.read(group_id), group_id, count_of)

    def _check_enabled(self) -> None:
        check_enabled("streams", STREAMS_VERSION, self.image(), is_served=self.settings.is_served)


def _topics(
    subtopologies: Iterable[
        streams_group_heartbeat.Subtopology | streams_group_describe.Subtopology
    ],
) -> Iterator[str]:
    """Yield every topic that a topology names."""
    for each in subtopologies:
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name


def _tell(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Add to the status that says which topics are missing."""
    for status in response.status or ():
        if status.status_code == Code.MISSING_INTERNAL_TOPICS:
            status.status_detail = f"{status.status_detail}; {detail}"
            return
    response.status = [*(response.status or ()), Status(Code.MISSING_INTERNAL_TOPICS, detail)]


def _refused(fault: Fault) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=fault.code, error_message=message_of(fault))
