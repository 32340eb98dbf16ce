"""The settings that throttle a reassignment, as Kafka's tool sets and removes them (KIP-73). Pure.

    topic   leader.replication.throttled.replicas     current replicas of the partition
            follower.replication.throttled.replicas   replicas that are added
    broker  leader.replication.throttled.rate         bytes per second, on every broker involved
            follower.replication.throttled.rate

Replicas are written ``partition:broker``. In-sync replicas are never throttled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.admin import Change, ConfigChange, Resource
from ottla.protocol.types import TopicPartition

LEADER: Final = "leader.replication.throttled"
FOLLOWER: Final = "follower.replication.throttled"


class Changed(NamedTuple):
    """Configuration changes of one resource."""

    kind: Resource
    name: str
    changes: tuple[Change, ...]


class Move(NamedTuple):
    """A reassigned partition: its current and its target replicas."""

    now: Sequence[int]
    wanted: Sequence[int]


def limits(moves: Mapping[TopicPartition, Move], rate: int) -> list[Changed]:
    """Return changes that limit moves to ``rate`` bytes per second and broker; topics first."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    brokers: set[int] = set()
    for name, move in sorted(moves.items()):
        leading, following = topics.setdefault(name.topic, ([], []))
        leading += [f"{name.partition}:{broker}" for broker in move.now]
        following += [f"{name.partition}:{b}" for b in move.wanted if b not in move.now]
        brokers.update(move.now, move.wanted)
    found = [
        Changed(
            Resource.TOPIC,
            topic,
            (
                Change(f"{LEADER}.replicas", ",".join(leading)),
                Change(f"{FOLLOWER}.replicas", ",".join(following)),
            ),
        )
        for topic, (leading, following) in topics.items()
    ]
    return [*found, *rates(brokers, rate)]


def rates(brokers: Iterable[int], rate: int) -> list[Changed]:
    """Return changes that set the rate of brokers."""
    changes = (Change(f"{LEADER}.rate", str(rate)), Change(f"{FOLLOWER}.rate", str(rate)))
    return [Changed(Resource.BROKER, str(broker), changes) for broker in sorted(brokers)]


def no_limits(topics: Iterable[str], brokers: Iterable[int]) -> list[Changed]:
    """Return changes that remove all throttles, brokers first."""

    def without(kind: Resource, name: str, what: str) -> Changed:
        keys = (f"{LEADER}.{what}", f"{FOLLOWER}.{what}")
        changes = tuple(Change(key, None, ConfigChange.DELETE) for key in keys)
        return Changed(kind, name, changes)

    return [
        *(without(Resource.BROKER, str(broker), "rate") for broker in sorted(brokers)),
        *(without(Resource.TOPIC, topic, "replicas") for topic in sorted(set(topics))),
    ]
