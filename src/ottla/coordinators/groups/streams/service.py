"""The streams groups of a broker, as the wire asks for them."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.service import Answered, Client, GroupCoordinator
from ottla.coordinators.groups.streams.describe import describe_streams_group
from ottla.coordinators.groups.streams.heartbeat import (
    StreamsBeat,
    check_streams_heartbeat,
    decide_streams_heartbeat,
)
from ottla.coordinators.groups.streams.kind import StreamsKind
from ottla.coordinators.groups.streams.reply import StreamsBeaten
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.metadata.features import STREAMS_VERSION
from ottla.metadata.image import Image
from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.messages.streams_group_describe import DescribedGroup
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

# From this level of streams.version on a cluster has streams groups.
_STREAMS_VERSION_MIN: Final = 1


class StreamsGroups(msgspec.Struct, frozen=True):
    """Finds the shard of a group and has it decide; faults are raised, or by what is awaited."""

    groups: GroupCoordinator
    settings: StreamsSettings
    image: Callable[[], Image]

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client
    ) -> Answered[StreamsBeaten]:
        """StreamsGroupHeartbeat; internal topics that are missing are for the caller to make."""
        self.check_served()
        check_streams_heartbeat(request)
        beat = StreamsBeat(request, client.client_id, client.host)

        def decide(machine: GroupMachine, now: Any, ticket: Any) -> Any:  # noqa: ANN401
            return decide_streams_heartbeat(machine.kind(StreamsKind).context, machine, beat)

        return self.groups.runtime.submit(self.groups.index_of(request.group_id), decide)

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe one streams group as it is committed."""
        self.check_served()
        view = self.groups.runtime.shard(self.groups.index_of(group_id)).committed()
        assert isinstance(view, GroupsView)
        topics = self.image().topics

        def count_of(name: str) -> int | None:
            topic = topics.named(name)
            return None if topic is None else len(topic.partitions)

        return describe_streams_group(view, group_id, count_of)

    def check_served(self) -> None:
        """Raise `UnsupportedVersion` where the protocol is off, here or in the cluster."""
        level = self.image().features.level(STREAMS_VERSION)
        if not self.settings.is_served or level < _STREAMS_VERSION_MIN:
            raise UnsupportedVersion("The streams group protocol is not enabled.")
