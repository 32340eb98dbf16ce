"""The effect of deleted topics on share groups."""

from collections.abc import Collection

from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.records import initialized_record
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Uuid


def decide_shared_topics_deleted(machine: GroupMachine, topic_ids: Collection[Uuid]) -> Decision:
    """Note that the state of deleted topics is gone; the share coordinator deletes it by itself.

    Members learn it with their next heartbeat, as the topics that they read have changed.
    """
    records: list[CoordinatorRecord] = []
    for group_id, group in sorted(machine.groups.items()):
        if isinstance(group, ShareGroup):
            left = frozenset(each for each in group.initialized if each[0] not in topic_ids)
            if left != group.initialized:
                records.append(initialized_record(group_id, left, group.topic_names))
    return Decision(records, may_split=True)
