"""The metadata of a cluster as a client knows it: brokers, topics and leaders. Pure.

Metadata is used until a broker contradicts it: then the client calls `forget` and requests it
again. There is no refresh in the background.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.types import ZERO_UUID, NodeId, Uuid
from ottla.runtime.ports import Address


class Leader(msgspec.Struct, frozen=True):
    """The leader of a partition. Requests carry ``epoch``, so that a stale leader is detected."""

    node_id: NodeId
    epoch: int


class KnownTopic(msgspec.Struct, frozen=True):
    """A topic from metadata; leaderless partitions have no entry in ``leaders``.

    A recreated topic has another ``topic_id``.
    """

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]
    leaders: dict[int, Leader]
    is_internal: bool = False


class ClusterMetadata:
    """What the last replies said. ``nodes`` are the brokers, ``controller`` takes its requests.

    ``doubts_max``: how often to ask again for a topic that does not exist; a new one may be missing
    in the metadata of some brokers.
    """

    def __init__(self, bootstrap: Sequence[Address], doubts_max: int = 0) -> None:
        self._bootstrap = tuple(bootstrap)
        self.doubts_max = doubts_max
        self.nodes: dict[NodeId, Address] = {}
        self.controller = NodeId(-1)
        self._topics: dict[str, KnownTopic] = {}
        self._ids: dict[str, Uuid] = {}

    def learn(self, response: MetadataResponse) -> None:
        """Store the brokers and topics of a reply."""
        self.nodes = {
            NodeId(each.node_id): Address(each.host, each.port) for each in response.brokers
        }
        self.controller = NodeId(response.controller_id)
        for topic in response.topics:
            if topic.name is not None:
                self._learn(topic.name, topic)

    def _learn(self, name: str, topic: MetadataResponseTopic) -> None:
        is_electing = topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE and topic.partitions
        if topic.error_code != ErrorCode.NONE and not is_electing:
            self.forget(name)
            return
        self._ids[name] = topic.topic_id
        self._topics[name] = KnownTopic(
            name,
            topic.topic_id,
            tuple(sorted(each.partition_index for each in topic.partitions)),
            {
                each.partition_index: Leader(NodeId(each.leader_id), each.leader_epoch)
                for each in topic.partitions
                if each.leader_id >= 0 and each.leader_id in self.nodes
            },
            topic.is_internal,
        )

    def topic(self, name: str) -> KnownTopic | None:
        """Return a topic; None if it must be requested."""
        return self._topics.get(name)

    def topic_id(self, name: str) -> Uuid:
        """Return the last known id of a topic, also after `forget`; zero if unknown."""
        return self._ids.get(name, ZERO_UUID)

    def forget(self, name: str) -> None:
        """Drop the metadata of a topic: a broker has contradicted it."""
        self._topics.pop(name, None)

    def addresses(self) -> Iterator[Address]:
        """Yield the addresses of the brokers, then those of the bootstrap list, each once."""
        yield from dict.fromkeys((*self.nodes.values(), *self._bootstrap))
