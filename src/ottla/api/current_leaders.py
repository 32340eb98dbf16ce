"""Who leads a partition instead, for a client that came to the wrong broker (KIP-951). Pure."""

from typing import NamedTuple

from ottla.metadata.image import Image
from ottla.protocol.types import NO_EPOCH, NO_LEADER


class CurrentLeader(NamedTuple):
    """Who leads a partition, as far as this broker knows; -1 for nobody."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a broker is, on the listener that the client uses."""

    node_id: int
    host: str
    port: int
    rack: str | None


def current_leader(image: Image, topic: str, partition: int) -> CurrentLeader:
    """Return who leads; nobody of a partition that the image does not know."""
    known = image.topics.named(topic)
    found = None if known is None else known.partitions.get(partition)
    if found is None:
        return CurrentLeader(NO_LEADER, NO_EPOCH)
    return CurrentLeader(found.leader, found.leader_epoch)


def endpoint_of(image: Image, broker_id: int, listener: str) -> NodeEndpoint | None:
    """Return where a broker that is alive can be reached by ``listener``; None if nowhere."""
    broker = image.cluster.brokers.get(broker_id)
    at = None if broker is None or broker.fenced else broker.listeners.get(listener)
    if broker is None or at is None:
        return None
    return NodeEndpoint(broker.id, at.host, at.port, broker.rack)
