"""What a client first asks: Metadata and DescribeCluster, answered from the image.

A broker is named by the listener that the client came in by; one without it is left out. Topics
are not made by asking for them: an unknown one is UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.api.routes import Caller, Route
from ottla.metadata.cluster import BrokerRegistration
from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration, Topic
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.types import NO_LEADER, ZERO_UUID

BROKERS: Final = 1
CONTROLLERS: Final = 2
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)


@dataclass(frozen=True, slots=True)
class ClusterHandlers:
    """``controller_id`` names any broker that forwards, as Kafka does since it has a quorum."""

    cluster_id: str
    image: Callable[[], Image]
    controller_id: Callable[[], int]
    kind: int = BROKERS

    def routes(self) -> tuple[Route, ...]:
        """Return the part of a route table that describes the cluster."""
        return (
            Route(ApiKey.METADATA, self.on_metadata),
            Route(ApiKey.DESCRIBE_CLUSTER, self.on_describe_cluster),
        )

    def on_metadata(
        self, caller: Caller, request: MetadataRequest, version: int
    ) -> MetadataResponse:
        """Describe brokers and topics."""
        image = self.image()
        alive = [
            broker for broker in image.cluster.unfenced() if caller.listener in broker.listeners
        ]
        return MetadataResponse(
            brokers=[_metadata_broker(broker, caller.listener) for broker in alive],
            cluster_id=self.cluster_id,
            controller_id=_any_broker(alive, self.controller_id()),
            topics=list(_topics(image, request, version, caller.listener)),
        )

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


def _topics(
    image: Image, request: MetadataRequest, version: int, listener: str
) -> Iterable[MetadataResponseTopic]:
    asked = request.topics
    if asked is None or (version == 0 and not asked):
        for name in sorted(image.topics.ids):
            yield _topic(image, image.topics.by_id[image.topics.ids[name]], listener)
        return
    for item in asked:
        found = _find(image, item)
        yield _unknown(item) if found is None else _topic(image, found, listener)


def _find(image: Image, asked: MetadataRequestTopic) -> Topic | None:
    if asked.name is not None and asked.name:
        return image.topics.named(asked.name)
    return image.topics.by_id.get(asked.topic_id)


def _unknown(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    by_id = not asked.name and asked.topic_id != ZERO_UUID
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(code, asked.name or None, asked.topic_id)


def _topic(image: Image, topic: Topic, listener: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, index, topic.partitions[index], listener)
            for index in sorted(topic.partitions)
        ],
    )


def _partition(
    image: Image, index: int, partition: PartitionRegistration, listener: str
) -> MetadataResponsePartition:
    def is_reachable(node_id: int) -> bool:
        broker = image.cluster.brokers.get(node_id)
        return broker is not None and not broker.fenced and listener in broker.listeners

    code = ErrorCode.NONE
    if partition.leader == NO_LEADER:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif not is_reachable(partition.leader):
        # Alive, but not on the listener that the client came in by.
        code = ErrorCode.LISTENER_NOT_FOUND
        if not image.cluster.is_unfenced(partition.leader):
            code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=partition.leader if code is ErrorCode.NONE else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[node for node in partition.replicas if not is_reachable(node)],
    )
