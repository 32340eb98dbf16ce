"""The ``range`` assignor: every member gets consecutive partitions of each topic.

Members are in one order, static ones first, so that a member gets the same partition numbers of
topics with equally many partitions: co-partitioned topics are read together. Not sticky beyond
that.
"""

from ottla.coordinators.groups.consumer.assignors.spec import GroupSpec, Partitions, Targets
from ottla.protocol.types import Uuid


def assign_range(group: GroupSpec) -> Targets:
    """Return the target of every member."""
    order = sorted(group.members, key=lambda member_id: _rank(group, member_id))
    given: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic_id in sorted(group.partition_counts):
        readers = [each for each in order if topic_id in group.members[each].topics]
        if not readers:
            continue
        each_gets, extra = divmod(group.partition_counts[topic_id], len(readers))
        begin = 0
        for position, member_id in enumerate(readers):
            end = begin + each_gets + (position < extra)
            if begin < end:
                given[member_id][topic_id] = frozenset(range(begin, end))
            begin = end
    targets: dict[str, Partitions] = dict(given)
    return targets


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
