"""What a client first asks: Metadata and DescribeCluster, answered from the image.

A broker is named by the listener that the client came in by; one without it is left out. A topic
that is asked for twice is described once, and one that is asked for by id is not also looked for
by name. An unknown one may be on its way when the client asks again: see `auto_create`.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.auto_create import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.api.routes import Caller, Route
from ottla.metadata.cluster import BrokerRegistration
from ottla.metadata.image import Image
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
    Topic,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.types import NO_LEADER, ZERO_UUID, Uuid
from ottla.storage.partition_names import is_topic_name

BROKERS: Final = 1
CONTROLLERS: Final = 2
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
# The first version that tells a leader without the client's listener from one that is not there.
_TELLS_LISTENERS: Final = 6
# The first version in which a topic may be asked for by its id.
_TAKES_IDS: Final = 12


class InvalidRequest(Fault):
    """A message that can be read and asks for what its version, or no version, can give."""

    code = ErrorCode.INVALID_REQUEST


def create_nothing(caller: Caller, topics: Iterable[str]) -> None:
    """Have no topic made by asking for it: the default of `ClusterHandlers`."""


class ClusterHandlers(msgspec.Struct, frozen=True):
    """``controller_id`` names any broker that forwards, as Kafka does since it has a quorum."""

    cluster_id: str
    image: Callable[[], Image]
    controller_id: Callable[[], int]
    kind: int = BROKERS
    create: Callable[[Caller, Iterable[str]], None] = create_nothing

    def routes(self) -> tuple[Route, ...]:
        """Return the part of a route table that describes the cluster."""
        return (
            Route(ApiKey.METADATA, self.on_metadata),
            Route(ApiKey.DESCRIBE_CLUSTER, self.on_describe_cluster),
        )

    def on_metadata(
        self, caller: Caller, request: MetadataRequest, version: int
    ) -> MetadataResponse:
        """Describe brokers and topics.

        Raises:
            InvalidRequest: topics without a name, or by id, in a version that has no such thing.
        """
        image = self.image()
        alive = [
            broker for broker in image.cluster.unfenced() if caller.listener in broker.listeners
        ]
        return MetadataResponse(
            brokers=[_metadata_broker(broker, caller.listener) for broker in alive],
            cluster_id=self.cluster_id,
            controller_id=_any_broker(alive, self.controller_id()),
            topics=self._topics(image, caller, request, version),
        )

    def _topics(
        self, image: Image, caller: Caller, request: MetadataRequest, version: int
    ) -> list[MetadataResponseTopic]:
        view = TopicView(image, caller.listener, version)
        asked = request.topics
        if asked is None or (version == 0 and not asked):
            return [view.topic(image.topics.by_id[image.topics.ids[n]]) for n in view.names()]
        if version < _TAKES_IDS and any(t.name is None or t.topic_id != ZERO_UUID for t in asked):
            raise InvalidRequest(f"Metadata v{version} asks for topics by name alone")
        ids = dict.fromkeys(t.topic_id for t in asked if t.topic_id != ZERO_UUID)
        if ids:
            return [view.by_id(topic_id) for topic_id in ids]
        names = dict.fromkeys(item.name or "" for item in asked)
        unknown = [n for n in names if n not in image.topics.ids and is_topic_name(n)]
        if unknown and request.allow_auto_topic_creation:
            self.create(caller, unknown)
        return [view.named(name) for name in names]

    def on_describe_cluster(
        self, caller: Caller, request: DescribeClusterRequest, version: int
    ) -> DescribeClusterResponse:
        """Describe the nodes of the kind that this listener serves."""
        if request.endpoint_type != self.kind:
            return _wrong_kind(request.endpoint_type)
        image = self.image()
        if self.kind == CONTROLLERS:
            return DescribeClusterResponse(
                error_message=None,
                endpoint_type=CONTROLLERS,
                cluster_id=self.cluster_id,
                controller_id=self.controller_id(),
                brokers=list(_controllers(image, caller.listener)),
            )
        brokers = [
            image.cluster.brokers[node_id]
            for node_id in sorted(image.cluster.brokers)
            if caller.listener in image.cluster.brokers[node_id].listeners
        ]
        alive = [broker for broker in brokers if not broker.fenced]
        shown = brokers if version >= 2 and request.include_fenced_brokers else alive
        return DescribeClusterResponse(
            error_message=None,
            cluster_id=self.cluster_id,
            controller_id=_any_broker(alive, self.controller_id()),
            brokers=[_described(broker, caller.listener) for broker in shown],
        )


def _wrong_kind(asked: int) -> DescribeClusterResponse:
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
    if asked not in (BROKERS, CONTROLLERS):
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    return DescribeClusterResponse(
        error_code=code, error_message="this listener describes another kind of node"
    )


def _any_broker(alive: list[BrokerRegistration], preferred: int) -> int:
    ids = [broker.id for broker in alive]
    if preferred in ids:
        return preferred
    return ids[0] if ids else -1


def _metadata_broker(broker: BrokerRegistration, listener: str) -> MetadataResponseBroker:
    at = broker.listeners[listener]
    return MetadataResponseBroker(broker.id, at.host, at.port, broker.rack)


def _described(broker: BrokerRegistration, listener: str) -> DescribeClusterBroker:
    at = broker.listeners[listener]
    return DescribeClusterBroker(broker.id, at.host, at.port, broker.rack, broker.fenced)


def _controllers(image: Image, listener: str) -> Iterable[DescribeClusterBroker]:
    for node_id in sorted(image.cluster.controllers):
        at = image.cluster.controllers[node_id].listeners.get(listener)
        if at is not None:
            yield DescribeClusterBroker(node_id, at.host, at.port, None)


# -- topics ------------------------------------------------------------------------


class TopicView(msgspec.Struct, frozen=True):
    """Topics as a client sees them that came in by ``listener`` and speaks ``version``."""

    image: Image
    listener: str
    version: int

    def names(self) -> list[str]:
        """Return the names of all topics, ascending."""
        return self.image.topics.names()

    def by_id(self, topic_id: Uuid) -> MetadataResponseTopic:
        """Describe a topic by its id."""
        found = self.image.topics.by_id.get(topic_id)
        if found is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        return self.topic(found)

    def named(self, name: str) -> MetadataResponseTopic:
        """Describe a topic by its name."""
        found = self.image.topics.named(name)
        if found is None:
            return MetadataResponseTopic(unknown_code(name), name, is_internal=is_internal(name))
        return self.topic(found)

    def topic(self, topic: Topic) -> MetadataResponseTopic:
        """Describe a topic that is there."""
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[
                self._partition(index, topic.partitions[index]) for index in topic.partition_ids()
            ],
        )

    def _partition(self, index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        image, listener = self.image, self.listener
        replicas, isr = list(partition.replicas), list(partition.isr)
        code = ErrorCode.NONE
        if not is_reachable(image, partition.leader, listener):
            code = ErrorCode.LEADER_NOT_AVAILABLE
            if self.version >= _TELLS_LISTENERS and image.cluster.is_unfenced(partition.leader):
                # Alive, but not on the listener that the client came in by.
                code = ErrorCode.LISTENER_NOT_FOUND
        elif self.version == 0:
            # Clients of then know only brokers that are alive.
            replicas = [node for node in replicas if is_reachable(image, node, listener)]
            isr = [node for node in isr if is_reachable(image, node, listener)]
            if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        has_leader = code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=partition.leader if has_leader else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(image, partition, listener),
        )


def is_internal(name: str) -> bool:
    """Say whether a topic is one that brokers keep for themselves."""
    return name in INTERNAL_TOPICS


def unknown_code(name: str) -> ErrorCode:
    """Return what is told of a topic that is not there: whether it could be."""
    if is_topic_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def is_reachable(image: Image, node_id: int, listener: str) -> bool:
    """Say whether a broker is alive and has a listener of this name."""
    broker = image.cluster.brokers.get(node_id)
    return broker is not None and not broker.fenced and listener in broker.listeners


def offline_replicas(image: Image, partition: PartitionRegistration, listener: str) -> list[int]:
    """Return the replicas that cannot be reached, or whose directory is lost (KIP-858)."""
    return [
        node
        for node, directory in zip(partition.replicas, partition.directories, strict=True)
        if not is_reachable(image, node, listener) or not _has_online(image, node, directory)
    ]


def _has_online(image: Image, node_id: int, directory: Uuid) -> bool:
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    online = image.cluster.brokers[node_id].log_dirs
    # A broker that registered without directories is of a version that did not tell of them.
    return directory != DIRECTORY_LOST and (not online or directory in online)
