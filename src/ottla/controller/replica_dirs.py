"""The log directories of replicas: failed ones (KIP-858), and cordoned ones (KIP-1066)."""

from collections.abc import Sequence

from ottla.controller.brokers import refuse_broker
from ottla.controller.decision import Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft, drop_from_isr
from ottla.controller.leader_and_isr import PartitionUpdate
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import BrokerRegistrationChangeRecord
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.types import TopicIdPartition, Uuid


def decide_assign_replicas(
    image: Image, request: AssignReplicasToDirsRequest, settings: DecisionSettings
) -> Decision[AssignReplicasToDirsResponse]:
    """Record where a broker keeps its replicas; one in a failed directory leaves the ISR."""
    if not image.metadata_version().is_directory_assignment_supported():
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        return Decision([], AssignReplicasToDirsResponse(error_code=code))
    refusal = refuse_broker(image, request.broker_id, request.broker_epoch)
    if refusal is not None:
        return Decision([], AssignReplicasToDirsResponse(error_code=int(refusal.code)))
    draft = Draft(image, settings)
    reply = AssignReplicasToDirsResponse()
    for directory in request.directories:
        answered = ResponseDirectoryData(id=directory.id)
        reply.directories.append(answered)
        for topic in directory.topics:
            topic_response = ResponseTopicData(topic_id=topic.topic_id)
            answered.topics.append(topic_response)
            for partition in topic.partitions:
                at = TopicIdPartition(topic.topic_id, partition.partition_index)
                code = _assign(draft, request.broker_id, directory.id, at)
                topic_response.partitions.append(ResponsePartitionData(at.partition, int(code)))
    return Decision(draft.records, reply)


def _assign(draft: Draft, broker_id: int, directory: Uuid, at: TopicIdPartition) -> ErrorCode:
    topic = draft.image.topics.by_id.get(at.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = draft.partition(topic, at.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    isr = partition.isr
    if not draft.image.cluster.brokers[broker_id].is_online(directory):
        isr = tuple(replica for replica in isr if replica != broker_id)
    update = PartitionUpdate(isr=isr, directories={broker_id: directory})
    draft.change(topic, at.partition, update)
    return ErrorCode.NONE


def offline_records(
    image: Image,
    broker: BrokerRegistration,
    offline: Sequence[Uuid],
    settings: DecisionSettings,
    *,
    is_leaving: bool,
) -> list[Versioned]:
    """Return the records for directories that failed on a broker; none if already recorded.

    ``is_leaving``: the broker leaves every ISR in the same decision, so that only its registration
    changes here.
    """
    failed = set(broker.log_dirs).intersection(offline)
    if not failed:
        return []
    draft = Draft(image, settings, leaving=broker.id)
    if not is_leaving:
        hosted = [
            at
            for at, partition in image.topics.replicas_on(broker.id)
            if partition.directory(broker.id) in failed
            and (broker.id in partition.isr or partition.leader == broker.id)
        ]
        drop_from_isr(draft, broker.id, hosted)
    left = [directory for directory in broker.log_dirs if directory not in failed]
    if not left:
        # A registration without directories cannot be written and has no meaning: a broker that
        # has lost all of them stops.
        return draft.records
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left
    )
    return [*draft.records, Versioned(change, 2)]


def cordon_records(
    image: Image, broker: BrokerRegistration, cordoned: Sequence[Uuid] | None
) -> list[Versioned]:
    """Return the record of a broker's cordoned directories; none if they are recorded already.

    ``cordoned`` is None while the broker does not know them: it is starting.
    """
    if cordoned is None or not image.metadata_version().is_cordoned_log_dirs_supported():
        return []
    recorded = broker.cordoned_log_dirs
    if recorded is not None and set(recorded) == set(cordoned):
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    return [Versioned(change, 3)]
