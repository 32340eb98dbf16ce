"""The ``simple`` assignor of share groups (KIP-932): which member reads which partition.

Every subscribed partition is read by at least one member, and every member reads at least one
partition of each topic it subscribes to, however many members there are. With more partitions than
members each partition has one reader; with more members partitions are shared evenly.
"""

from collections.abc import Mapping, Sequence

from ottla.protocol.types import TopicIdPartition, Uuid


def assign_shared(
    subscriptions: Mapping[str, frozenset[Uuid]], partitions: Mapping[Uuid, Sequence[int]]
) -> dict[str, frozenset[TopicIdPartition]]:
    """Return the target of every member, as a function of the arguments alone.

    ``subscriptions`` are topics by member; ``partitions`` those that may be read.
    """
    targets: dict[str, set[TopicIdPartition]] = {member: set() for member in sorted(subscriptions)}
    turn = 0
    for topic_id in sorted(partitions):
        members = [member for member in targets if topic_id in subscriptions[member]]
        indexes = sorted(partitions[topic_id])
        if not members or not indexes:
            continue
        for step in range(max(len(members), len(indexes))):
            member = members[(turn + step) % len(members)]
            targets[member].add(TopicIdPartition(topic_id, indexes[step % len(indexes)]))
        turn += len(indexes)  # the next topic continues where this one ended
    return {member: frozenset(partitions) for member, partitions in targets.items()}
