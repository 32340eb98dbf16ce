"""AlterPartition: the leader of a partition reports its in-sync replicas.

The leader sends the leader epoch and the partition epoch it knows. It may not overwrite a newer
state that it does not know yet; if its epochs are newer than ours, this controller is outdated.
Every member it names must be alive, and be the incarnation that the leader saw (KIP-903).
"""

from ottla.controller.brokers import refuse_broker
from ottla.controller.decision import Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft
from ottla.controller.leader_and_isr import PartitionUpdate
from ottla.metadata.image import Image
from ottla.metadata.topics import LeaderRecoveryState, PartitionRegistration, Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

EPOCH_UNKNOWN = -1


def decide_alter_partition(
    image: Image, request: AlterPartitionRequest, settings: DecisionSettings
) -> Decision[AlterPartitionResponse]:
    """Apply the ISRs that a leader reports, each on its own."""
    refusal = refuse_broker(image, request.broker_id, request.broker_epoch)
    if refusal is not None:
        return Decision([], AlterPartitionResponse(error_code=int(refusal.code)))
    draft = Draft(image, settings)
    reply = AlterPartitionResponse()
    for data in request.topics:
        topic_response = ResponseTopicData(topic_id=data.topic_id)
        reply.topics.append(topic_response)
        topic = image.topics.by_id.get(data.topic_id)
        for partition in data.partitions:
            if topic is None:
                topic_response.partitions.append(_error(partition, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                topic_response.partitions.append(_alter(draft, request.broker_id, topic, partition))
    return Decision(draft.records, reply)


def _alter(
    draft: Draft, leader: int, topic: Topic, data: RequestPartitionData
) -> ResponsePartitionData:
    old = draft.partition(topic, data.partition_index)
    if old is None:
        return _error(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    members = _members(data)
    refused = _refuse_epochs(old, leader, data) or _refuse_isr(draft.image, old, members, data)
    if refused is not None:
        return _error(data, refused)
    update = PartitionUpdate(
        isr=tuple(member.broker_id for member in members),
        recovery_state=LeaderRecoveryState(data.leader_recovery_state),
    )
    new = draft.change(topic, data.partition_index, update) or old
    if new.leader != leader:
        # The change completed a reassignment that removes the leader. It is applied, and the
        # leader must look up the new leader.
        return _error(data, ErrorCode.NEW_LEADER_ELECTED)
    return ResponsePartitionData(
        partition_index=data.partition_index,
        leader_id=new.leader,
        leader_epoch=new.leader_epoch,
        isr=list(new.isr),
        leader_recovery_state=int(new.leader_recovery_state),
        partition_epoch=new.partition_epoch,
    )


def _members(data: RequestPartitionData) -> list[BrokerState]:
    """Return the reported ISR; before version 3 it had no epochs."""
    return data.new_isr_with_epochs or [BrokerState(id_, EPOCH_UNKNOWN) for id_ in data.new_isr]


def _refuse_epochs(
    old: PartitionRegistration, leader: int, data: RequestPartitionData
) -> ErrorCode | None:
    if data.leader_epoch > old.leader_epoch or data.partition_epoch > old.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < old.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != old.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < old.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return None


def _refuse_isr(
    image: Image,
    old: PartitionRegistration,
    members: list[BrokerState],
    data: RequestPartitionData,
) -> ErrorCode | None:
    isr = [member.broker_id for member in members]
    is_recovering = data.leader_recovery_state == LeaderRecoveryState.RECOVERING
    is_valid = (
        len(set(isr)) == len(isr)
        and set(isr) <= set(old.replicas)
        and old.leader in isr
        and data.leader_recovery_state in LeaderRecoveryState.__members__.values()
        # A leader that still has to recover has no in-sync followers, and no leader goes back to
        # it.
        and not (is_recovering and len(isr) > 1)
        and not (is_recovering and old.leader_recovery_state is LeaderRecoveryState.RECOVERED)
    )
    if not is_valid:
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_eligible(image: Image, member: BrokerState) -> bool:
    broker = image.cluster.brokers.get(member.broker_id)
    if broker is None or not broker.is_active():
        return False
    return member.broker_epoch in (EPOCH_UNKNOWN, broker.epoch)


def _error(data: RequestPartitionData, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=data.partition_index, error_code=int(code))
