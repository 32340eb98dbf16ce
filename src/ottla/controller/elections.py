"""Elections that somebody asked for (KIP-460), and those of topics that may elect uncleanly."""

from collections.abc import Iterable

from ottla.controller.decision import RECORDS_MAX, ControllerState, Decision, Refusal
from ottla.controller.draft import Draft
from ottla.controller.partitions import Election, Wanted
from ottla.controller.settings import DecisionSettings
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

# One round of the controller's own elections; what is left waits for the next.
ELECTIONS_MAX = 1000

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_DONE = Refusal(ErrorCode.NONE, "")


def decide_elect_leaders(
    image: Image, request: ElectLeadersRequest, settings: DecisionSettings
) -> Decision[ElectLeadersResponse]:
    """Elect as asked: preferred leaders, or any leader for partitions without one.

    Without partitions named it is about all of them, and those that need no election are not
    mentioned in the reply.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        return Decision([], ElectLeadersResponse(error_code=int(ErrorCode.INVALID_REQUEST)))
    draft = Draft(image, settings)
    reply = ElectLeadersResponse()
    for name, partition_ids in _asked(image, request):
        told = ReplicaElectionResult(topic=name)
        reply.replica_election_results.append(told)
        for partition_id in partition_ids:
            outcome = _elect(draft, name, partition_id, election)
            if outcome.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
                continue
            text = outcome.message or None
            told.partition_result.append(PartitionResult(partition_id, int(outcome.code), text))
    if len(draft.records) > RECORDS_MAX:
        return Decision([], ElectLeadersResponse(error_code=int(ErrorCode.POLICY_VIOLATION)))
    return Decision(draft.records, reply)


def _asked(image: Image, request: ElectLeadersRequest) -> Iterable[tuple[str, list[int]]]:
    if request.topic_partitions is not None:
        return [(named.topic, named.partitions) for named in request.topic_partitions]
    topics = (image.topics.named(name) for name in image.topics.names())
    return [(topic.name, topic.partition_ids()) for topic in topics if topic is not None]


def _elect(draft: Draft, name: str, partition_id: int, election: Election) -> Refusal:
    topic = draft.image.topics.named(name)
    partition = None if topic is None else draft.partition(topic, partition_id)
    if topic is None or partition is None:
        text = f"there is no partition {name}-{partition_id}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if election is Election.PREFERRED:
        if partition.leader == partition.preferred_leader():
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "the first replica leads already")
    elif partition.has_leader():
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "there is a leader")
    if draft.change(topic, partition_id, Wanted(election=election)) is not None:
        return _DONE
    if election is Election.PREFERRED:
        text = "the first replica is not in sync, or not alive"
        return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is alive")


def decide_unclean_elections(state: ControllerState, settings: DecisionSettings) -> Decision[None]:
    """Elect for partitions without a leader, of topics that prefer any leader to none.

    For the controller's own rounds: a topic may have come to allow it after its leader went.
    """
    draft = Draft(state.image, settings)
    for at in sorted(state.index.leaderless):
        topic: Topic = state.image.topics.by_id[at.topic_id]
        if draft.policies.is_unclean_enabled(topic):
            draft.change(topic, at.partition_id, Wanted(election=Election.UNCLEAN))
        if len(draft.records) >= ELECTIONS_MAX:
            break
    return Decision(draft.records, None)
