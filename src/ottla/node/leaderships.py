"""Lets a coordinator follow the partitions led here, whenever it comes to be."""

from collections.abc import Callable
from typing import Protocol

from ottla.protocol.types import LeaderEpoch
from ottla.replication.hosted_partitions import Partitions


class FollowsLeadership(Protocol):
    """Who wants to know which partitions of its topic are led here. May be told twice."""

    topic: str

    @property
    def on_led(self) -> Callable[[str, int, LeaderEpoch], None]:
        """Called with topic, index and epoch of a partition that is led."""
        ...

    @property
    def on_unled(self) -> Callable[[str, int, LeaderEpoch | None], None]:
        """Called when it is led no longer."""
        ...


def follow_leaderships(partitions: Partitions, follower: FollowsLeadership) -> None:
    """Tell of what is led now, and of every change from now on."""
    partitions.on_led(follower.on_led)
    partitions.on_unled(follower.on_unled)
    for partition in partitions:
        if partition.topic == follower.topic and partition.is_leader:
            follower.on_led(partition.topic, partition.index, partition.leader_epoch)
