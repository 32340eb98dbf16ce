"""Find problems of a cluster in what is known about it. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin_quorum import DescribedQuorum
from ottla.operations.cluster_state import ClusterState
from ottla.operations.counting import plural
from ottla.protocol.errors import ErrorCode, name_of_code
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.types import Millis

# A voter fetches at least every half second; after this time without a fetch it has failed or is
# partitioned.
VOTER_SILENT_MS: Final = 10_000
LOST_PAGE: Final = "docs/backup.md, `Two of three voters are lost`"
QUORUM: Final = "metadata quorum"
_NOT_DESCRIBED: Final = "Metadata can perhaps not be changed. Look at the logs of the controllers."
_NOT_ALLOWED: Final = "Whether metadata can be changed is not known without this right."
_ELECTING: Final = (
    "An election may be under way. If this lasts, look at the logs of the voters and at the "
    "network between them."
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and the resource that has it."""

    subject: str
    problem: str


@dataclass(frozen=True, slots=True)
class LostQuorum:
    """A quorum that cannot change metadata, or be described: what is wrong, and what to do."""

    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.problem}\n{self.advice}"


def find_problems(state: ClusterState, now: Millis) -> list[Problem]:
    """Return all problems: brokers first, then the quorum, then partitions."""
    return [*_broker_problems(state), *_quorum_problems(state, now), *_partition_problems(state)]


def fix_of(problem: Problem) -> str:
    """Return what to do about a problem of a broker, a controller or a partition."""
    if problem.subject.startswith(("broker ", "controller ")):
        return "Start it again, or look at its log."
    return "Start the brokers that are missing, or look at their logs."


def led_partitions(topics: Iterable[MetadataResponseTopic]) -> Counter[int]:
    """Return how many partitions each broker leads, as the metadata says."""
    return Counter(
        partition.leader_id
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    )


def lost_quorum(state: ClusterState) -> LostQuorum | None:
    """Return what is wrong with a quorum that cannot change metadata; None if it can."""
    if state.quorum is None:
        is_refused = name_of_code(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) in state.quorum_failure
        return LostQuorum(
            f"the metadata quorum cannot be described: {state.quorum_failure}",
            _NOT_ALLOWED if is_refused else _NOT_DESCRIBED,
        )
    voters, reached = _voters(state.quorum), sorted(state.reached_voters)
    has_majority = len(reached) > len(voters) // 2
    if state.quorum.has_leader and has_majority:
        return None
    lack = "no leader" if not state.quorum.has_leader else "a leader without a majority"
    verb = "is" if len(reached) == 1 else "are"
    problem = (
        f"the metadata quorum has {lack}: {len(reached)} of {len(voters)} voters {verb} reachable"
    )
    return LostQuorum(problem, _ELECTING if has_majority else _start_again(voters, reached))


def _start_again(voters: Sequence[int], reached: Collection[int]) -> str:
    missing = [voter for voter in voters if voter not in reached]
    nodes = "node" if len(missing) == 1 else "nodes"
    return (
        f"Start {nodes} {_joined(missing)} again. If that is impossible, read {LOST_PAGE}.\nUntil "
        "then metadata cannot be changed, and no leaders are elected."
    )


def _joined(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def _voters(quorum: DescribedQuorum) -> list[int]:
    return sorted(voter.replica_id for voter in quorum.state.current_voters)


def _broker_problems(state: ClusterState) -> Iterator[Problem]:
    led = led_partitions(state.topics)
    for broker in state.brokers:
        subject = f"broker {broker.broker_id}"
        reason = state.unreachable.get(broker.broker_id)
        if broker.is_fenced:
            yield Problem(subject, "is fenced: it does not serve clients")
        elif reason is not None:
            count = led[broker.broker_id]
            partitions = plural(count, "partition")
            at = f"{broker.host}:{broker.port}"
            yield Problem(subject, f"does not answer at {at} ({reason}); it leads {partitions}")


def _quorum_problems(state: ClusterState, now: Millis) -> list[Problem]:
    lost = lost_quorum(state)
    if lost is not None:
        return [Problem(QUORUM, lost.problem)]
    assert state.quorum is not None
    quorum = state.quorum.state
    return [
        Problem(f"controller {voter.replica_id}", "has not fetched metadata for a while")
        for voter in quorum.current_voters
        if voter.replica_id != quorum.leader_id
        and voter.last_fetch_timestamp >= 0
        and now - voter.last_fetch_timestamp > VOTER_SILENT_MS
    ]


def _partition_problems(state: ClusterState) -> Iterator[Problem]:
    for topic in state.topics:
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            problem = _partition_problem(partition, state.unreachable)
            if problem is not None:
                yield Problem(f"{topic.name}-{partition.partition_index}", problem)


def _partition_problem(
    partition: MetadataResponsePartition, unreachable: Collection[int]
) -> str | None:
    if partition.leader_id < 0:
        return "has no leader: clients cannot read or write it"
    if partition.leader_id in unreachable:
        return f"is led by broker {partition.leader_id}, which does not answer"
    if len(partition.isr_nodes) < len(partition.replica_nodes):
        late = sorted(set(partition.replica_nodes) - set(partition.isr_nodes))
        return f"is under-replicated: {', '.join(map(str, late))} not in sync"
    gone = [broker for broker in sorted(partition.replica_nodes) if broker in unreachable]
    if gone:  # not noticed yet, or there is no controller that could notice it
        return f"is under-replicated: {', '.join(map(str, gone))} not reachable"
    return None
