"""Whether the next node of a cluster may be stopped now. Pure.

A node may be stopped if afterwards every partition still has an in-sync replica and the quorum a
majority. So every partition must have its leader and all its replicas in sync, every broker must be
registered and unfenced, and every voter must follow the metadata log.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ottla.cli.migration.cluster_facts import ClusterFacts, PartitionFacts
from ottla.operations.counting import counted, plural

METADATA_LAG_MAX: Final = 1000
"""A voter that lacks more records of the metadata log is not counted on for a majority."""
SHOWN_MAX: Final = 5


class Decision(msgspec.Struct, frozen=True):
    """Whether to go on. ``reasons`` say what has to change first; empty if it is safe."""

    reasons: Sequence[str]
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether the next node may be stopped."""
        return not self.reasons


def decide(facts: ClusterFacts, expected: int | None = None) -> Decision:
    """Decide from the state of the cluster. ``expected`` is the number of nodes there must be."""
    offline = [each for each in facts.partitions if each.leader < 0]
    late = [
        each for each in facts.partitions if each.leader >= 0 and len(each.isr) < len(each.replicas)
    ]
    # As in Kafka, a topic with fewer replicas than min.insync.replicas needs no more than it has.
    tight = [
        each for each in facts.partitions if len(each.isr) < min(each.min_isr, len(each.replicas))
    ]
    reasons = [*_node_reasons(facts, expected)]
    if offline:
        reasons.append(f"{_partitions(len(offline))} without a leader: {_names(offline)}")
    if late:
        reasons.append(f"{_partitions(len(late))} under-replicated: {_names(late)}")
    if tight:
        reasons.append(f"{_partitions(len(tight))} below min.insync.replicas: {_names(tight)}")
    if facts.reassignments:
        reasons.append(f"{_partitions(len(facts.reassignments))} being reassigned")
    return Decision(reasons, len(late), len(tight), len(offline))


def _node_reasons(facts: ClusterFacts, expected: int | None) -> Iterator[str]:
    if expected is not None and len(facts.nodes) < expected:
        yield f"{len(facts.nodes)} of {expected} nodes are there"
    if not facts.has_quorum_leader:
        yield "the quorum has no active controller"
    for node in facts.nodes:
        if node.is_fenced:
            yield f"node {node.node_id} is fenced: it has not caught up, or does not run"
        elif node.is_broker and node.problem:
            yield f"node {node.node_id} does not answer: {node.problem}"
        lag = node.metadata_lag
        if node.is_voter and lag is not None and lag > METADATA_LAG_MAX:
            yield f"voter {node.node_id} lags {plural(lag, 'record')} behind the metadata log"
        elif node.is_voter and lag is None and facts.has_quorum_leader:
            yield f"voter {node.node_id} has not fetched the metadata log for a while"


def _partitions(count: int) -> str:
    return counted(count, "partition")


def _names(partitions: Sequence[PartitionFacts]) -> str:
    more = " ..." if len(partitions) > SHOWN_MAX else ""
    return ", ".join(str(each.name) for each in partitions[:SHOWN_MAX]) + more
