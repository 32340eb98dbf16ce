"""The consumer groups of a broker, as the wire asks for them."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.coordinators.groups.consumer.describe import describe_consumer_group
from ottla.coordinators.groups.consumer.heartbeat import (
    Beat,
    check_heartbeat,
    decide_consumer_heartbeat,
)
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.service import Answered, Client, GroupCoordinator
from ottla.metadata.features import GROUP_VERSION
from ottla.metadata.image import Image
from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.uuids import uuid_text

# From this level of group.version on a cluster has consumer groups.
_GROUP_VERSION_MIN: Final = 1


class ConsumerGroups(msgspec.Struct, frozen=True):
    """Finds the shard of a group and has it decide; faults are raised, or by what is awaited."""

    groups: GroupCoordinator
    settings: ConsumerSettings
    image: Callable[[], Image]

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
        may_see: Callable[[str], bool],
    ) -> Answered[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat. ``may_see``: topics that an expression may match here."""
        self._check_served()
        check_heartbeat(request, version, self.settings.assignors)
        fresh_id = "" if request.member_id else uuid_text(self.groups.random.uuid())
        beat = Beat(request, client.client_id, client.host, fresh_id, may_see)

        def decide(machine: GroupMachine, now: Any, ticket: Any) -> Any:  # noqa: ANN401
            return decide_consumer_heartbeat(machine.kind(ConsumerKind).context, machine, beat, now)

        return self.groups.runtime.submit(self.groups.index_of(request.group_id), decide)

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe one consumer group as it is committed."""
        self._check_served()
        view = self.groups.runtime.shard(self.groups.index_of(group_id)).committed()
        assert isinstance(view, GroupsView)
        return describe_consumer_group(view, group_id, self.image(), self.settings.assignors[0])

    def _check_served(self) -> None:
        """Raise `UnsupportedVersion` where the protocol is off, here or in the cluster."""
        level = self.image().features.level(GROUP_VERSION)
        if not self.settings.is_served or level < _GROUP_VERSION_MIN:
            raise UnsupportedVersion("The consumer group protocol is not enabled.")
