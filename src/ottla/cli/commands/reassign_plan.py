"""Assign replicas to brokers, moving as few as possible. Pure.

A replica stays where it is if its broker is allowed, and so does the preferred leader. A replica
that must move, or is new, goes to a rack without a replica if there is one, there to a host with
the fewest replicas of the partition, and there to the broker that has the fewest replicas then.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.types import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


class BadPlan(Exception):
    """There are not enough brokers; the message names the partition."""


class Location(NamedTuple):
    """Where a broker runs: its rack, and the host it advertises. None: not known."""

    rack: str | None = None
    host: str | None = None


class Brokers(NamedTuple):
    """Brokers that may have replicas: ids with their locations, and how many replicas each has."""

    locations: Mapping[int, Location]
    load: Mapping[int, int]


def plan_onto(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Brokers,
    replication_factor: int | None = None,
) -> Assignment:
    """Return the partitions that change so that all replicas are on ``brokers``.

    Raises:
        BadPlan: there are fewer brokers than replicas.
    """
    load = {broker: brokers.load.get(broker, 0) for broker in brokers.locations}
    changes: Assignment = {}
    for name in sorted(current):
        now = current[name]
        wanted = replication_factor or len(now)
        if wanted > len(brokers.locations):
            raise BadPlan(f"{name}: {wanted} replicas need as many brokers, not {len(load)}")
        kept = [broker for broker in now if broker in load][:wanted]
        for broker in set(now).intersection(load).difference(kept):
            load[broker] -= 1
        chosen = list(kept)
        while len(chosen) < wanted:
            chosen.append(_next(chosen, brokers.locations, load))
            load[chosen[-1]] += 1
        if tuple(chosen) != tuple(now):
            changes[name] = tuple(chosen)
    return changes


def _next(chosen: Sequence[int], where: Mapping[int, Location], load: Mapping[int, int]) -> int:
    racks = {where[broker].rack for broker in chosen}
    hosts = Counter(where[broker].host for broker in chosen if where[broker].host)
    free = [broker for broker in where if broker not in chosen]

    def cost(broker: int) -> tuple[bool, int, int, int]:
        at = where[broker]
        return at.rack in racks, hosts[at.host], load[broker], broker

    return min(free, key=cost)


def plan_drain(
    current: Mapping[TopicPartition, Sequence[int]],
    locations: Mapping[int, Location],
    leaving: int,
) -> Assignment:
    """Return the partitions that change so that no replica is on ``leaving``.

    ``locations`` are those of the brokers that stay, ``current`` all partitions of the cluster.

    Raises:
        BadPlan: a partition has a replica on every broker already.
    """
    load = dict.fromkeys(locations, 0)
    for replicas in current.values():
        for broker in replicas:
            if broker in load:
                load[broker] += 1
    affected = {name: replicas for name, replicas in current.items() if leaving in replicas}
    changes: Assignment = {}
    for name in sorted(affected):
        stay = [broker for broker in affected[name] if broker != leaving]
        if set(locations) <= set(stay):
            raise BadPlan(f"{name}: every other broker has a replica of it already")
        new = _next([each for each in stay if each in locations], locations, load)
        load[new] += 1
        changes[name] = tuple(new if each == leaving else each for each in affected[name])
    return changes
