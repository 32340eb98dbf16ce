"""The overview: brokers, quorum, and what needs attention."""

from ottla.client.admin_quorum import DescribedQuorum
from ottla.console.endpoints import Call
from ottla.operations.cluster_state import ClusterState, observe
from ottla.operations.health import QUORUM, Problem, find_problems, fix_of, led_partitions
from ottla.operations.internal_topics import is_internal
from ottla.operations.rows import Row

PROBLEMS_MAX = 50


async def overview(call: Call) -> Row:
    """Return the state of the cluster and its problems."""
    state = await observe(call.cluster)
    problems = find_problems(state, call.context.clock.now())
    return overview_row(state, problems)


def overview_row(state: ClusterState, problems: list[Problem]) -> Row:
    """Return the state of a cluster as a row. Pure."""
    led = led_partitions(state.topics)
    partitions = [each for topic in state.topics for each in topic.partitions]
    late = [each for each in partitions if len(each.isr_nodes) < len(each.replica_nodes)]
    return {
        "cluster_id": state.cluster_id,
        "brokers": [
            {
                "id": broker.broker_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "is_fenced": broker.is_fenced,
                "failure": state.unreachable.get(broker.broker_id),
                "leads": led[broker.broker_id],
            }
            for broker in state.brokers
        ],
        "topics": sum(1 for topic in state.topics if not is_internal(topic)),
        "internal_topics": sum(1 for topic in state.topics if is_internal(topic)),
        "partitions": len(partitions),
        "under_replicated": len(late),
        "without_leader": sum(1 for each in partitions if each.leader_id < 0),
        "quorum": None if state.quorum is None else quorum_row(state.quorum),
        "quorum_failure": state.quorum_failure,
        "problems": [_problem_row(problem) for problem in problems[:PROBLEMS_MAX]],
        "problem_count": len(problems),
    }


def quorum_row(quorum: DescribedQuorum) -> Row:
    """Return the metadata quorum as a row. Pure."""
    state = quorum.state
    leader = next(
        (each for each in state.current_voters if each.replica_id == state.leader_id), None
    )
    end = state.high_watermark if leader is None else leader.log_end_offset

    def replicas(is_voter: bool) -> list[Row]:
        return [
            {
                "id": replica.replica_id,
                "is_voter": is_voter,
                "is_leader": replica.replica_id == state.leader_id,
                "log_end_offset": replica.log_end_offset,
                "lag": max(0, end - replica.log_end_offset),
                "last_fetch": replica.last_fetch_timestamp,
            }
            for replica in (state.current_voters if is_voter else state.observers)
        ]

    return {
        "leader": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "high_watermark": state.high_watermark,
        "replicas": [*replicas(True), *replicas(False)],
    }


def _problem_row(problem: Problem) -> Row:
    fix = "See the Brokers page." if problem.subject == QUORUM else fix_of(problem)
    return {"subject": problem.subject, "problem": problem.problem, "fix": fix}
