"""Metadata and DescribeCluster, a client's first requests, answered from the image.

A broker is listed with its endpoint on the listener of the client; one without it is left out. A
topic that is requested twice is described once, and one that is requested by id is not also looked
up by name. An unknown one may be created by the time the client retries: see `auto_create`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from ottla.api.cluster.auto_create import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.api.cluster.topic_rows import RowMemory, cost_of, pack_metadata
from ottla.api.security.access import OPEN, Access
from ottla.api.security.authorized_operations import NOT_ASKED
from ottla.api.surface.replies import Body, Steps, batched, collect
from ottla.api.surface.routes import Caller
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
    Topic,
    Topics,
)
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
from ottla.protocol.own_topics import is_own_topic
from ottla.protocol.types import NO_LEADER, ZERO_UUID, Uuid
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.storage.directory.partition_names import is_topic_name

BROKERS: Final = 1
CONTROLLERS: Final = 2
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
# The first version that distinguishes a leader without the client's listener from no leader.
_TELLS_LISTENERS: Final = 6
# The first version in which a topic can be requested by its id.
_TAKES_IDS: Final = 12


class InvalidRequest(Fault):
    """A well-formed request for something that its version does not support."""

    code = ErrorCode.INVALID_REQUEST


def create_nothing(caller: Caller, topics: Iterable[str]) -> None:
    """Create no topic: the default of `ClusterHandlers`."""


def none_fenced() -> Collection[int]:
    """Return no broker: the default of `ClusterHandlers`."""
    return ()


class ClusterHandlers(msgspec.Struct, frozen=True):
    """``controller_id`` returns any broker that forwards, as in Kafka with KRaft.

    ``recently_fenced`` returns the brokers that Metadata lists although they are fenced: see
    `ottla.api.cluster.fenced_brokers`.
    """

    cluster_id: str
    image: Callable[[], Image]
    controller_id: Callable[[], int]
    kind: int = BROKERS
    create: Callable[[Caller, Iterable[str]], None] = create_nothing
    access: Access = OPEN
    recently_fenced: Callable[[], Collection[int]] = none_fenced
    rows: RowMemory = msgspec.field(default_factory=RowMemory)

    def answer_metadata_steps(
        self, caller: Caller, request: MetadataRequest, version: int
    ) -> Steps[Body]:
        """Answer as `metadata_steps`; all topics at once from rows that were encoded before.

        Raises:
            InvalidRequest: as `metadata_steps`.
        """
        if not _asks_for_all(request, version) or request.include_topic_authorized_operations:
            return (yield from self.metadata_steps(caller, request, version))
        image = self.image()
        reply = self._described_cluster(image, caller, request)
        topics, listener = image.topics, caller.listener
        view = TopicView(image, listener, version)
        known = self.rows.view(listener, version, image.cluster.brokers, topics)
        found = (known.row(topic, view.topic) for topic in self._visible(topics, caller))
        rows = yield from collect(found, cost_of)
        return pack_metadata(reply, rows, version)

    def metadata_steps(
        self, caller: Caller, request: MetadataRequest, version: int
    ) -> Steps[MetadataResponse]:
        """Describe brokers and topics, all from one image.

        Raises:
            InvalidRequest: topics without a name, or by id, in a version without that.
        """
        image = self.image()
        reply = self._described_cluster(image, caller, request)
        reply.topics = yield from self._topics(image, caller, request, version)
        return reply

    def _described_cluster(
        self, image: Image, caller: Caller, request: MetadataRequest
    ) -> MetadataResponse:
        """Return a reply that describes the brokers, without topics."""
        alive = _reachable(image, caller.listener)
        listed = _with_fenced(alive, image, self.recently_fenced(), caller.listener)
        return MetadataResponse(
            brokers=[_metadata_broker(broker, caller.listener) for broker in listed],
            cluster_id=self.cluster_id,
            controller_id=_any_broker(alive, self.controller_id()),
            cluster_authorized_operations=self._operations(
                caller, is_asked=request.include_cluster_authorized_operations
            ),
        )

    def _operations(self, caller: Caller, *, is_asked: bool) -> int:
        """Return what the caller may do to the cluster, where it asks and may know (KIP-430)."""
        if not is_asked:
            return NOT_ASKED
        describe, cluster = AclOperation.DESCRIBE, ResourceType.CLUSTER
        if not self.access.allows(caller, describe, cluster, CLUSTER_NAME):
            return 0
        return self.access.operations(caller, cluster, CLUSTER_NAME)

    def _topics(
        self, image: Image, caller: Caller, request: MetadataRequest, version: int
    ) -> Steps[list[MetadataResponseTopic]]:
        operations = not_asked
        if request.include_topic_authorized_operations:
            operations = partial(self.access.operations, caller, ResourceType.TOPIC)
        view = TopicView(image, caller.listener, version, operations)
        may_describe = self._describes(caller)
        asked = request.topics
        if asked is None or _asks_for_all(request, version):
            visible = self._visible(image.topics, caller)
            return (yield from collect(map(view.topic, visible), _cost))
        names: dict[str, None] = {}
        ids: dict[Uuid, None] = {}
        for group in batched(asked):
            for item in group:
                if version < _TAKES_IDS and (item.name is None or item.topic_id != ZERO_UUID):
                    raise InvalidRequest(f"Metadata v{version} asks for topics by name alone")
                if item.topic_id != ZERO_UUID:
                    ids[item.topic_id] = None
                else:
                    names[item.name or ""] = None
            yield
        if ids:
            found = (view.by_id(each, may_describe) for each in ids)
            return (yield from collect(found, _cost))
        hidden = {name for name in names if not may_describe(name, True)}
        refused: set[str] = set()
        if request.allow_auto_topic_creation and self.create is not create_nothing:
            wanted = [name for name in names if name not in hidden]
            refused = yield from self._create_unknown(image, caller, wanted)

        def row(name: str) -> MetadataResponseTopic:
            if name in hidden:
                return view.refused(name)
            is_refused = name in refused
            return view.refused(name, is_internal(name)) if is_refused else view.named(name)

        return (yield from collect(map(row, names), _cost))

    def _visible(self, topics: Topics, caller: Caller) -> Iterator[Topic]:
        """Yield the topics that a client may describe, by name."""
        may_describe = self._describes(caller)
        for name in self.rows.names(topics):
            if may_describe(name, False):
                yield topics.by_id[topics.ids[name]]

    def _describes(self, caller: Caller) -> "MayDescribe":
        def may_describe(name: str, is_audited: bool) -> bool:
            return self.access.allows(
                caller, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=is_audited
            )

        return may_describe

    def _create_unknown(
        self, image: Image, caller: Caller, names: Iterable[str]
    ) -> Steps[set[str]]:
        """Have unknown topics created; return those that the caller may not create."""
        refused: set[str] = set()
        for group in batched(names):
            unknown = [name for name in group if name not in image.topics.ids]
            allowed = [name for name in unknown if self.access.may_create_topic(caller, name)]
            refused.update(set(unknown) - set(allowed))
            wanted = [name for name in allowed if is_topic_name(name)]
            if wanted:
                self.create(caller, wanted)
            yield
        return refused

    def on_describe_cluster(
        self, caller: Caller, request: DescribeClusterRequest, version: int
    ) -> DescribeClusterResponse:
        """Describe the nodes of the kind that this listener serves."""
        image = self.image()
        if self.kind == CONTROLLERS and not _registers_controllers(image):
            # An empty list of controllers would have the client ask again until its timeout.
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message="Direct-to-controller communication is not supported with the "
                "current MetadataVersion.",
            )
        if request.endpoint_type != self.kind:
            return _wrong_kind(request.endpoint_type, version)
        operations = self._operations(
            caller, is_asked=request.include_cluster_authorized_operations
        )
        if self.kind == CONTROLLERS:
            return DescribeClusterResponse(
                error_message=None,
                cluster_authorized_operations=operations,
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
            cluster_authorized_operations=operations,
            cluster_id=self.cluster_id,
            controller_id=_any_broker(alive, self.controller_id()),
            brokers=[_described(broker, caller.listener) for broker in shown],
        )


def _asks_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _cost(topic: MetadataResponseTopic) -> int:
    return 1 + len(topic.partitions)


def _registers_controllers(image: Image) -> bool:
    """Say whether controllers register: a client finds them by their registrations."""
    version = image.features.metadata_version()
    return version is None or version.is_controller_registration_supported()


def _wrong_kind(asked: int, version: int) -> DescribeClusterResponse:
    # A client of version 0 cannot request a kind, and does not know the error for the wrong one.
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if version else ErrorCode.INVALID_REQUEST
    if asked not in (BROKERS, CONTROLLERS):
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    return DescribeClusterResponse(
        error_code=code, error_message="this listener describes another kind of node"
    )


def _reachable(image: Image, listener: str) -> list[BrokerRegistration]:
    """Return the brokers to list: all unfenced ones, else all.

    After a restart of the whole cluster every broker is fenced for a while. A client takes an empty
    list for the cluster: librdkafka then drops every address it has, the bootstrap servers
    included, and a synchronous commit waits for a coordinator forever.
    """
    found = image.cluster.unfenced()
    if not found:
        found = [image.cluster.brokers[each] for each in sorted(image.cluster.brokers)]
    return [broker for broker in found if listener in broker.listeners]


def _with_fenced(
    alive: list[BrokerRegistration], image: Image, fenced: Collection[int], listener: str
) -> list[BrokerRegistration]:
    """Return the reachable brokers and those of ``fenced``, by id."""
    if not fenced:
        return alive
    found = {broker.id: broker for broker in alive}
    for broker_id in fenced:
        broker = image.cluster.brokers.get(broker_id)
        if broker is not None and listener in broker.listeners:
            found[broker_id] = broker
    return [found[each] for each in sorted(found)]


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


MayDescribe = Callable[[str, bool], bool]
"""Whether the client may describe a topic, by its name and whether a denial is logged."""


def not_asked(name: str) -> int:
    """Return the operations of a topic for a request that does not ask for them."""
    return NOT_ASKED


class TopicView(msgspec.Struct, frozen=True):
    """Describes topics for a client of one version on one listener."""

    image: Image
    listener: str
    version: int
    operations: Callable[[str], int] = not_asked
    """The operations that the client may perform on a topic, where it requests them."""

    def by_id(self, topic_id: Uuid, may_describe: MayDescribe) -> MetadataResponseTopic:
        """Describe a topic by its id; a client that may not describe it does not see its name."""
        found = self.image.topics.by_id.get(topic_id)
        if found is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if not may_describe(found.name, True):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return self.topic(found)

    def refused(self, name: str, is_internal: bool = False) -> MetadataResponseTopic:
        """Refuse to describe a topic, whether it exists or not, or to create it."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(code, name, is_internal=is_internal)

    def named(self, name: str) -> MetadataResponseTopic:
        """Describe a topic by its name."""
        found = self.image.topics.named(name)
        if found is None:
            return MetadataResponseTopic(
                unknown_code(name),
                name,
                is_internal=is_internal(name),
                topic_authorized_operations=self.operations(name),
            )
        return self.topic(found)

    def topic(self, topic: Topic) -> MetadataResponseTopic:
        """Describe a topic that exists."""
        return MetadataResponseTopic(
            topic_authorized_operations=self.operations(topic.name),
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
                # Alive, but without the listener of the client.
                code = ErrorCode.LISTENER_NOT_FOUND
        elif self.version == 0:
            # Clients of those versions expect only brokers that are alive.
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
    """Say whether a topic is internal to brokers, or holds the state of a tool of Ottla.

    Clients that subscribe to a pattern leave internal topics out.
    """
    return name in INTERNAL_TOPICS or is_own_topic(name)


def unknown_code(name: str) -> ErrorCode:
    """Return the error of a topic that does not exist, by whether its name is valid."""
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
    # A broker that registered without directories has a version that does not report them.
    return directory != DIRECTORY_LOST and (not online or directory in online)
