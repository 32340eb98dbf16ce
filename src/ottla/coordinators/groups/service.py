"""The group coordinator of a broker: its runtime, and what surrounds the groups.

Handlers call the runtime: `CoordinatorRuntime.write` with a pure decision of this package, or
`CoordinatorRuntime.read` for what is committed.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.committed import TopicPartition
from ottla.coordinators.groups.requests import decide_partitions_deleted
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.share.topic_deletion import decide_shared_topics_deleted
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.runtime.ports import Random

BeforeDelete: TypeAlias = Callable[[str], Awaitable[ErrorCode]]
"""Deletes what is kept elsewhere for a group id; returns NONE if the group may be deleted."""


class Client(msgspec.Struct, frozen=True):
    """The client id and host of a request, as Kafka records them."""

    client_id: str
    host: str


class GroupCoordinator(msgspec.Struct, frozen=True):
    """All groups that this broker coordinates. ``before_delete`` runs before a group is deleted."""

    runtime: CoordinatorRuntime[GroupMachine]
    settings: GroupSettings
    random: Random
    before_delete: list[BeforeDelete] = msgspec.field(default_factory=list)

    name: str = "group-coordinator"

    async def prepare_delete(self, group_id: str) -> ErrorCode:
        """Delete what is kept elsewhere for a group that is to be deleted."""
        for prepare in self.before_delete:
            code = await prepare(group_id)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    # -- the image -------------------------------------------------------------

    def on_image(self, delta: Delta, image: Image) -> None:
        """Delete the offsets of deleted topics; those that cannot be deleted now expire."""
        deleted: list[TopicPartition] = [
            (topic.name, index) for topic in delta.deleted_topics() for index in topic.partitions
        ]
        ids = frozenset(topic.id for topic in delta.deleted_topics())
        if deleted:
            self.runtime.write_to_all(
                lambda machine, now: decide_partitions_deleted(machine, deleted)
            )
            self.runtime.write_to_all(
                lambda machine, now: decide_shared_topics_deleted(machine, ids)
            )
