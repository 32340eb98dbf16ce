"""Which settings hold a reassignment back, as Kafka's tool sets and removes them (KIP-73). Pure.

    topic   leader.replication.throttled.replicas     who has the partition now
            follower.replication.throttled.replicas   who gets it
    broker  leader.replication.throttled.rate         bytes a second, of every broker concerned
            follower.replication.throttled.rate

Replicas are written ``partition:broker``. Who is in sync already is never held back.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.admin import Change, ConfigChange, Resource
from ottla.protocol.types import TopicPartition

LEADER: Final = "leader.replication.throttled"
FOLLOWER: Final = "follower.replication.throttled"


class Changed(NamedTuple):
    """What is to be changed of one resource."""

    kind: Resource
    name: str
    changes: tuple[Change, ...]


class Move(NamedTuple):
    """A partition that moves: who has it, and who shall."""

    now: Sequence[int]
    wanted: Sequence[int]


def limits(moves: Mapping[TopicPartition, Move], rate: int) -> list[Changed]:
    """Return what holds moves back to ``rate`` bytes a second on every broker; topics first."""
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
    """Return what sets the rate of brokers."""
    changes = (Change(f"{LEADER}.rate", str(rate)), Change(f"{FOLLOWER}.rate", str(rate)))
    return [Changed(Resource.BROKER, str(broker), changes) for broker in sorted(brokers)]


def no_limits(topics: Iterable[str], brokers: Iterable[int]) -> list[Changed]:
    """Return what takes all limits away again, brokers first."""

    def without(kind: Resource, name: str, what: str) -> Changed:
        keys = (f"{LEADER}.{what}", f"{FOLLOWER}.{what}")
        changes = tuple(Change(key, None, ConfigChange.DELETE) for key in keys)
        return Changed(kind, name, changes)

    return [
        *(without(Resource.BROKER, str(broker), "rate") for broker in sorted(brokers)),
        *(without(Resource.TOPIC, topic, "replicas") for topic in sorted(set(topics))),
    ]
