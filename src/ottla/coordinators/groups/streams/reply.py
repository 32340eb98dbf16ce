"""The result of a StreamsGroupHeartbeat, returned once the decision is committed."""

from typing import NamedTuple

from ottla.coordinators.groups.streams.tasks import Tasks, by_subtopology
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.protocol.messages.streams_group_heartbeat import (
    ResponseTaskIds,
    StreamsGroupHeartbeatResponse,
)


class StreamsHeartbeatResult(NamedTuple):
    """The reply, and the internal topics that have to be created for the group's tasks."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[InternalTopic, ...] = ()


def task_ids(tasks: Tasks) -> list[ResponseTaskIds]:
    """Return tasks as a reply lists them, in order."""
    return [ResponseTaskIds(*each) for each in by_subtopology(tasks)]
