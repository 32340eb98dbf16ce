"""Notifies a coordinator of the partitions led here, also of those led before it existed."""

from collections.abc import Callable
from typing import Protocol

from ottla.protocol.types import LeaderEpoch
from ottla.replication.hosted_partitions import Partitions


class FollowsLeadership(Protocol):
    """Follows the leaderships of one topic; may be notified of the same one twice."""

    topic: str

    @property
    def on_led(self) -> Callable[[str, int, LeaderEpoch], None]:
        """Called with topic, index and epoch when a partition is led here."""
        ...

    @property
    def on_unled(self) -> Callable[[str, int, LeaderEpoch | None], None]:
        """Called when it is no longer led here."""
        ...


def follow_leaderships(partitions: Partitions, follower: FollowsLeadership) -> None:
    """Notify the follower of the partitions led now, and of every change from now on."""
    partitions.on_led(follower.on_led)
    partitions.on_unled(follower.on_unled)
    for partition in partitions:
        if partition.topic == follower.topic and partition.is_leader:
            follower.on_led(partition.topic, partition.index, partition.leader_epoch)
