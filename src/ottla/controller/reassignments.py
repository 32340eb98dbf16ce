"""Reassignment of partitions to other brokers (KIP-455): begin, cancel, list. It ends by itself.

    replicas = target + replicas to remove, adding, removing    until the target is in sync
    replicas = target                                           then, by `plan_change`

A reassignment completes with the ISR change that brings the last replica in sync, in the same
record; one that only reorders or removes replicas completes at once.
"""

from collections import Counter
from collections.abc import Sequence

from ottla.controller.decision import RECORDS_MAX, ControllerState, Decision, Refusal
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft
from ottla.controller.leader_and_isr import PartitionUpdate
from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration, Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def decide_alter_reassignments(
    image: Image, request: AlterPartitionReassignmentsRequest, settings: DecisionSettings
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Begin, change or cancel reassignments, each partition on its own."""
    draft = Draft(image, settings)
    may_resize = request.allow_replication_factor_change
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize, error_message=None
    )
    for named in request.topics:
        topic_response = ReassignableTopicResponse(name=named.name)
        reply.responses.append(topic_response)
        for partition in named.partitions:
            refusal = _alter(draft, image.topics.named(named.name), partition, may_resize)
            code, text = (ErrorCode.NONE, None) if refusal is None else refusal
            if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                text = None  # as in Kafka: the error code suffices
            topic_response.partitions.append(
                ReassignablePartitionResponse(partition.partition_index, int(code), text)
            )
    if len(draft.records) > RECORDS_MAX:
        reply = AlterPartitionReassignmentsResponse(
            error_code=int(ErrorCode.POLICY_VIOLATION),
            error_message=f"more than {RECORDS_MAX} changes in one request",
        )
        return Decision([], reply)
    return Decision(draft.records, reply)


def _alter(
    draft: Draft, topic: Topic | None, requested: ReassignablePartition, may_resize: bool
) -> Refusal | None:
    partition = None if topic is None else draft.partition(topic, requested.partition_index)
    if topic is None or partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
    if requested.replicas is None:
        return _cancel(draft, topic, requested.partition_index, partition)
    refusal = refuse_assignment(draft.image, requested.replicas)
    if refusal is None and not may_resize:
        refusal = _refuse_resize(partition, requested.replicas)
    if refusal is not None:
        return refusal
    target = tuple(requested.replicas)
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    added = tuple(sorted(set(target) - set(partition.replicas)))
    update = PartitionUpdate(
        replicas=(*target, *removing),
        # If a reassignment was in progress, the replicas it was adding are still being added.
        adding=added or partition.adding_replicas,
        removing=removing,
    )
    draft.change(topic, requested.partition_index, update)
    return None


def _cancel(
    draft: Draft, topic: Topic, partition_id: int, partition: PartitionRegistration
) -> Refusal | None:
    """Return to the replicas from before; replicas that were being added are dropped."""
    if not partition.is_reassigning():
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not replicas:
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partition would have no replica")
    if not isr:
        if not draft.policies.is_unclean_enabled(topic):
            text = "only added replicas are in sync: cancelling would lose records"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    update = PartitionUpdate(isr=isr, replicas=replicas, adding=(), removing=())
    draft.change(topic, partition_id, update)
    return None


def refuse_assignment(
    image: Image, replicas: Sequence[int], replication_factor: int | None = None
) -> Refusal | None:
    """Return what is wrong with the replicas requested for a partition, or None."""
    text = None
    unknown = [replica for replica in replicas if replica not in image.cluster.brokers]
    if not replicas:
        text = "a partition needs at least one replica"
    elif unknown:
        text = (
            f"The manual partition assignment includes broker {min(unknown)}, "
            "but no such broker is registered."
        )
    elif len(set(replicas)) != len(replicas):
        repeated = min(replica for replica, count in Counter(replicas).items() if count > 1)
        text = f"The manual partition assignment includes the broker {repeated} more than once."
    elif replication_factor not in (None, len(replicas)):
        text = (
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )
    return None if text is None else Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _refuse_resize(partition: PartitionRegistration, target: Sequence[int]) -> Refusal | None:
    """Reject a change of the replication factor that the client did not allow (KIP-860)."""
    now = len(set(partition.replicas) - set(partition.removing_replicas))
    if now == len(target):
        return None
    text = f"The replication factor is changed from {now} to {len(target)}"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def list_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the ongoing reassignments of the given partitions, or of all."""
    reply = ListPartitionReassignmentsResponse(error_message=None)
    topics = state.image.topics
    by_topic: dict[str, list[int]] = {}
    if request.topics is None:
        for at in sorted(state.index.reassigning):
            by_topic.setdefault(topics.by_id[at.topic_id].name, []).append(at.partition)
    else:
        for named in request.topics:
            by_topic.setdefault(named.name, []).extend(named.partition_indexes)
    for name in sorted(by_topic):
        topic = topics.named(name)
        ongoing = [] if topic is None else _ongoing(topic, by_topic[name])
        if ongoing:
            reply.topics.append(OngoingTopicReassignment(name, ongoing))
    return reply


def _ongoing(topic: Topic, partition_ids: Sequence[int]) -> list[OngoingPartitionReassignment]:
    partitions = ((i, topic.partitions.get(i)) for i in partition_ids)
    return [
        OngoingPartitionReassignment(
            partition_index=i,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for i, partition in partitions
        if partition is not None and partition.is_reassigning()
    ]
