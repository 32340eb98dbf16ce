"""The current leader of a partition, for a client that used the wrong broker (KIP-951). Pure."""

from typing import NamedTuple

from ottla.metadata.image import Image
from ottla.protocol.types import NO_EPOCH, NO_LEADER


class CurrentLeader(NamedTuple):
    """The leader of a partition as far as this broker knows; -1 for none."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """The endpoint of a broker on the listener of the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


def current_leader(image: Image, topic: str, partition: int) -> CurrentLeader:
    """Return the leader; none for a partition that the image does not have."""
    known = image.topics.named(topic)
    found = None if known is None else known.partitions.get(partition)
    if found is None:
        return CurrentLeader(NO_LEADER, NO_EPOCH)
    return CurrentLeader(found.leader, found.leader_epoch)


def endpoint_of(image: Image, broker_id: int, listener: str) -> NodeEndpoint | None:
    """Return the endpoint of a live broker on ``listener``; None if it has none."""
    broker = image.cluster.brokers.get(broker_id)
    at = None if broker is None or broker.fenced else broker.listeners.get(listener)
    if broker is None or at is None:
        return None
    return NodeEndpoint(broker.id, at.host, at.port, broker.rack)
