"""Assign replicas to brokers, moving as few as possible. Pure.

A replica stays where it is if its broker is allowed, and so does the preferred leader. A replica
that must move, or is new, goes to the broker with the fewest replicas at that point, in a rack
without a replica if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.types import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


class BadPlan(Exception):
    """There are not enough brokers; the message names the partition."""


class Brokers(NamedTuple):
    """Brokers that may have replicas: ids with their racks, and how many replicas each has."""

    racks: Mapping[int, str | None]
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
    load = {broker: brokers.load.get(broker, 0) for broker in brokers.racks}
    changes: Assignment = {}
    for name in sorted(current):
        now = current[name]
        wanted = replication_factor or len(now)
        if wanted > len(brokers.racks):
            raise BadPlan(f"{name}: {wanted} replicas need as many brokers, not {len(load)}")
        kept = [broker for broker in now if broker in load][:wanted]
        for broker in set(now).intersection(load).difference(kept):
            load[broker] -= 1
        chosen = list(kept)
        while len(chosen) < wanted:
            chosen.append(_next(chosen, brokers.racks, load))
            load[chosen[-1]] += 1
        if tuple(chosen) != tuple(now):
            changes[name] = tuple(chosen)
    return changes


def _next(chosen: Sequence[int], racks: Mapping[int, str | None], load: Mapping[int, int]) -> int:
    taken = {racks[broker] for broker in chosen}
    free = [broker for broker in racks if broker not in chosen]
    return min(free, key=lambda broker: (racks[broker] in taken, load[broker], broker))


def plan_drain(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    leaving: int,
) -> Assignment:
    """Return the partitions that change so that no replica is on ``leaving``.

    ``racks`` are the brokers that stay, ``current`` all partitions of the cluster.

    Raises:
        BadPlan: a partition has a replica on every broker already.
    """
    load = dict.fromkeys(racks, 0)
    for replicas in current.values():
        for broker in replicas:
            if broker in load:
                load[broker] += 1
    affected = {name: replicas for name, replicas in current.items() if leaving in replicas}
    changes: Assignment = {}
    for name in sorted(affected):
        stay = [broker for broker in affected[name] if broker != leaving]
        if set(racks) <= set(stay):
            raise BadPlan(f"{name}: every other broker has a replica of it already")
        new = _next([each for each in stay if each in racks], racks, load)
        load[new] += 1
        changes[name] = tuple(new if each == leaving else each for each in affected[name])
    return changes
