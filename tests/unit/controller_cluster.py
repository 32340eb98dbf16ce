"""A small cluster for tests of decisions: requests in, records replayed as from a log."""

from ottla.controller.alter_partition import decide_alter_partition
from ottla.controller.broker_liveness import HeartbeatContext
from ottla.controller.brokers import (
    RegistrationContext,
    decide_broker_registration,
    decide_fence,
)
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.heartbeats import decide_broker_heartbeat
from ottla.controller.partition_index import index_of
from ottla.controller.topic_creation import TopicContext, decide_create_topics
from ottla.controller.unclean_recovery import (
    LogState,
    decide_recoveries,
    partitions_to_recover,
    polls_by_broker,
    recoveries,
)
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, supported_features
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.metadata.replay import apply
from ottla.metadata.topics import PartitionRegistration, Topic
from ottla.protocol.internal.framing import Versioned, decode_framed, encode_framed
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_records import METADATA_RECORDS
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset, Uuid
from simulation.random import SimRandom

CLUSTER = "cluster"
NO_CONTEXT = HeartbeatContext()
NEWEST = MetadataVersion.IBP_4_2_IV1


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(bytes([9, broker_id, number]) + bytes(13))


def incarnation(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(bytes([7, broker_id, number]) + bytes(13))


def registration(broker_id: int, number: int = 0, directories: int = 1, **more: object) -> Message:
    fields: dict[str, object] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER,
        "incarnation_id": incarnation(broker_id, number),
        "log_dirs": [directory(broker_id, i) for i in range(directories)],
        "rack": None,
        "features": [Feature(n, r.min, r.max) for n, r in sorted(supported_features().items())],
    }
    return BrokerRegistrationRequest(**{**fields, **more})


class ControllerCluster:
    """The newest state of a cluster, and the requests its nodes send."""

    def __init__(self, brokers: int = 0, level: int = NEWEST, elr: bool = False) -> None:
        self.state = ControllerState()
        self.offset = 0
        self.settings = DecisionSettings(ConfigContext(node_id=100))
        self.random = SimRandom(1)
        self.write(FeatureLevelRecord(METADATA_VERSION, int(level)))
        if elr:
            self.write(FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
        for broker_id in range(brokers):
            self.start(broker_id)

    @property
    def image(self):
        return self.state.image

    def write(self, *records: Message) -> None:
        self.take(Decision([Versioned(record, 0) for record in records], None))

    def take(self, decision: Decision):
        """Replay a decision's records after an encoding round trip; return its reply."""
        read = [decode_framed(METADATA_RECORDS, encode_framed(r)).message for r in decision.records]
        _, self.delta = apply(self.image, read)
        self.state = self.state.after(self.delta)
        assert self.state.index == index_of(self.image)
        self.offset += len(read)
        if decision.then is not None:
            self.take(decision.then(self.image))
        return decision.reply

    # -- brokers -----------------------------------------------------------------------------

    def register(self, broker_id: int, number: int = 0, has_session: bool = False, **more: object):
        context = RegistrationContext(CLUSTER, Offset(self.offset), has_session)
        request = registration(broker_id, number, **more)
        return self.take(decide_broker_registration(self.image, request, context, self.settings))

    def heartbeat(
        self, broker_id: int, context: HeartbeatContext = NO_CONTEXT, **more: object
    ) -> BrokerHeartbeatResponse:
        fields: dict[str, object] = {
            "broker_id": broker_id,
            "broker_epoch": self.image.cluster.broker_epoch(broker_id),
            "current_metadata_offset": self.offset,
        }
        request = BrokerHeartbeatRequest(**{**fields, **more})
        return self.take(decide_broker_heartbeat(self.state, request, context, self.settings))

    def start(self, broker_id: int, number: int = 0, **more: object) -> None:
        assert self.register(broker_id, number, **more).error_code == 0
        assert not self.heartbeat(broker_id).is_fenced

    def kill(self, broker_id: int) -> None:
        epoch = self.image.cluster.broker_epoch(broker_id)
        self.take(decide_fence(self.image, broker_id, epoch, self.settings))

    def recover(self, **ends: tuple[int, int]) -> None:
        """Run unclean recovery with the given log ends: b1=(last epoch, end), ...

        A broker that is not given does not answer.
        """
        leaderless = partitions_to_recover(self.state, self.settings)
        answers = {
            broker_id: {each.at: LogState(*ends[f"b{broker_id}"]) for each in of}
            for broker_id, of in polls_by_broker(leaderless).items()
            if f"b{broker_id}" in ends
        }
        found = recoveries(leaderless, answers)
        self.take(decide_recoveries(self.image, found, self.settings))

    # -- topics ------------------------------------------------------------------------------

    @property
    def topics(self) -> TopicContext:
        return TopicContext(self.settings, self.random)

    def create(self, name: str, *replicas: list[int], configs: dict[str, str] | None = None):
        asked = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(i, r) for i, r in enumerate(replicas)],
            configs=[CreatableTopicConfig(k, v) for k, v in (configs or {}).items()],
        )
        reply = self.take(
            decide_create_topics(self.state, CreateTopicsRequest([asked]), self.topics)
        )
        assert reply.topics[0].error_code == 0, reply
        return reply.topics[0]

    def topic(self, name: str) -> Topic:
        topic = self.image.topics.named(name)
        assert topic is not None
        return topic

    def partition(self, name: str = "t", partition_id: int = 0) -> PartitionRegistration:
        return self.topic(name).partitions[partition_id]

    def configure(self, kind: int, resource: str, name: str, value: str | None) -> None:
        self.write(ConfigRecord(kind, resource, name, value))

    def isr(
        self, *members: int, name: str = "t", partition_id: int = 0, **more: object
    ) -> ResponsePartitionData:
        """Report an ISR as the leader of a partition; ``more`` overrides fields."""
        old = self.partition(name, partition_id)
        fields: dict[str, object] = {
            "partition_index": partition_id,
            "leader_epoch": old.leader_epoch,
            "partition_epoch": old.partition_epoch,
            "new_isr_with_epochs": [
                BrokerState(m, self.image.cluster.broker_epoch(m)) for m in members
            ],
        }
        leader = more.pop("leader", old.leader)
        data = RequestPartitionData(**{**fields, **more})
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.image.cluster.broker_epoch(leader),
            topics=[RequestTopicData(self.topic(name).id, [data])],
        )
        reply = self.take(decide_alter_partition(self.image, request, self.settings))
        assert reply.error_code == 0
        return reply.topics[0].partitions[0]
