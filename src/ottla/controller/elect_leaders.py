"""ElectLeaders: elections requested by a client (KIP-460).

An unclean election needs to know which replica has the most complete log (`unclean_recovery`): the
replicas are polled first, and only one that answered is elected.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ottla.controller.decision import RECORDS_MAX, Decision, Refusal
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft
from ottla.controller.leader_and_isr import Election, PartitionUpdate
from ottla.controller.unclean_recovery import Recovery, recover
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.types import TopicIdPartition

# The most elections in one round of the controller's own; the rest wait for the next round.
ELECTIONS_MAX = 1000

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_DONE = Refusal(ErrorCode.NONE, "")

Recoveries = Mapping[TopicIdPartition, Recovery]


def unclean_partitions(image: Image, request: ElectLeadersRequest) -> list[TopicIdPartition]:
    """Return the requested partitions that need an unclean election and have no leader."""
    if _ELECTIONS.get(request.election_type) is not Election.UNCLEAN:
        return []
    found: list[TopicIdPartition] = []
    for name, partition_ids in _requested(image, request):
        topic = image.topics.named(name)
        if topic is not None:
            found += [
                TopicIdPartition(topic.id, partition_id)
                for partition_id in dict.fromkeys(partition_ids)
                if partition_id in topic.partitions
                and not topic.partitions[partition_id].has_leader()
            ]
    return found


def decide_elect_leaders(
    image: Image,
    request: ElectLeadersRequest,
    settings: DecisionSettings,
    recoveries: Recoveries = MappingProxyType({}),
) -> Decision[ElectLeadersResponse]:
    """Elect as requested: preferred leaders, or the most complete replicas (unclean).

    A request without partitions is for all of them, and those that need no election are left out of
    the reply. ``recoveries`` are the results of polling the replicas of `unclean_partitions`.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        return Decision([], _unknown_type(request))
    draft = Draft(image, settings)
    reply = ElectLeadersResponse()
    for name, partition_ids in _requested(image, request):
        topic_result = ReplicaElectionResult(topic=name)
        reply.replica_election_results.append(topic_result)
        for partition_id in partition_ids:
            outcome = _elect(draft, name, partition_id, election, recoveries)
            if outcome.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
                continue
            text = outcome.message or None
            topic_result.partition_result.append(
                PartitionResult(partition_id, int(outcome.code), text)
            )
    if len(draft.records) > RECORDS_MAX:
        return Decision([], ElectLeadersResponse(error_code=int(ErrorCode.POLICY_VIOLATION)))
    return Decision(draft.records, reply)


def _unknown_type(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Reject an unknown election type: for the whole request and for every partition in it."""
    code, text = int(ErrorCode.INVALID_REQUEST), f"unknown election type {request.election_type}"
    results = [
        ReplicaElectionResult(
            named.topic, [PartitionResult(number, code, text) for number in named.partitions]
        )
        for named in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _requested(image: Image, request: ElectLeadersRequest) -> Iterable[tuple[str, list[int]]]:
    if request.topic_partitions is not None:
        return [(named.topic, named.partitions) for named in request.topic_partitions]
    topics = (image.topics.named(name) for name in image.topics.names())
    return [(topic.name, topic.partition_ids()) for topic in topics if topic is not None]


def _elect(
    draft: Draft, name: str, partition_id: int, election: Election, recoveries: Recoveries
) -> Refusal:
    topic = draft.image.topics.named(name)
    partition = None if topic is None else draft.partition(topic, partition_id)
    if topic is None or partition is None:
        text = f"topic as {name}" if topic is None else f"partition as {name}-{partition_id}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {text}")
    if election is Election.PREFERRED:
        return _elect_preferred(draft, topic, partition_id)
    if partition.has_leader():
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "the partition has a leader")
    if draft.change(topic, partition_id, PartitionUpdate()) is not None:
        return _DONE
    at = TopicIdPartition(topic.id, partition_id)
    if at in recoveries and recover(draft, at, recoveries[at]):
        return _DONE
    text = "no replica is alive and reported the end of its log"
    return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)


def _elect_preferred(draft: Draft, topic: Topic, partition_id: int) -> Refusal:
    partition = draft.partition(topic, partition_id)
    assert partition is not None
    if partition.leader == partition.preferred_leader():
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica already leads")
    if draft.change(topic, partition_id, PartitionUpdate(election=Election.PREFERRED)) is not None:
        return _DONE
    text = "The preferred leader was not available."
    return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
