"""The topics that a topology needs, their partition counts, and whether they exist (KIP-1071).

    source topics       must exist; if one is missing nothing else can be determined
    repartition topics  the partition count they specify, else that of what feeds the
                        subtopology that writes them; equal within a copartition group
    changelogs          as many partitions as their subtopology has tasks
    tasks               as many as the largest topic that a subtopology reads has partitions

The caller creates missing internal topics; an existing topic with another partition count is never
changed, since its records are already partitioned.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.errors import InvalidTopology
from ottla.coordinators.groups.streams.topology import (
    InternalTopic,
    Subtopology,
    Topology,
    check_topology,
)

PartitionCount: TypeAlias = Callable[[str], int | None]
"""Returns the partition count of a topic; None if it does not exist."""

# At most this many topics are named in a status.
_NAMED_MAX: Final = 3


class Status(enum.IntEnum):
    """The status of a group for its members, by the codes of StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(msgspec.Struct, frozen=True):
    """Why the tasks of a topology cannot run yet."""

    status: Status
    detail: str


class Configured(msgspec.Struct, frozen=True):
    """A topology and the topics it was compared with.

    ``task_counts`` and ``internal`` are empty if a problem leaves them undetermined; ``internal``
    are all internal topics by name, with their actual or required partition counts, and ``missing``
    are those that have to be created.
    """

    topology: Topology
    task_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    internal: Mapping[str, InternalTopic] = msgspec.field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    problem: TopicProblem | None = None

    def is_ready(self) -> bool:
        """Whether tasks may run."""
        return self.problem is None


class _PartitionCountMismatch(Exception):
    """Existing topics do not have the partition counts that the topology needs."""


def configure(topology: Topology, count_of: PartitionCount) -> Configured:
    """Compare a topology with the existing topics. Raises `InvalidTopology`."""
    check_topology(topology)
    sources = sorted({name for each in topology.subtopologies for name in each.source_topics})
    missing = [name for name in sources if count_of(name) is None]
    if missing:
        detail = f"Source topics {_some(missing)} are missing."
        return Configured(topology, problem=TopicProblem(Status.MISSING_SOURCE_TOPICS, detail))
    try:
        return _configured(topology, count_of)
    except _PartitionCountMismatch as unfit:
        problem = TopicProblem(Status.INCORRECTLY_PARTITIONED_TOPICS, str(unfit))
        return Configured(topology, problem=problem)


def _configured(topology: Topology, count_of: PartitionCount) -> Configured:
    """Configure a topology whose source topics all exist."""
    counts = _repartition_counts(topology, count_of)

    def known(name: str) -> int:
        found = count_of(name)
        return counts[name] if found is None else found

    _copartition(topology, counts, known)
    task_counts = {
        each.subtopology_id: max(known(name) for name in each.reads())
        for each in topology.subtopologies
    }
    internal: dict[str, InternalTopic] = {}
    for each in topology.subtopologies:
        for topic in each.repartition_source_topics:
            internal[topic.name] = replace(topic, partitions=topic.partitions or counts[topic.name])
        for topic in each.state_changelog_topics:
            internal[topic.name] = replace(topic, partitions=task_counts[each.subtopology_id])
    missing = _missing(internal, count_of)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_some([each.name for each in missing])}"
        problem = TopicProblem(Status.MISSING_INTERNAL_TOPICS, detail)
    return Configured(topology, task_counts, internal, missing, problem)


def _missing(
    internal: Mapping[str, InternalTopic], count_of: PartitionCount
) -> tuple[InternalTopic, ...]:
    """Return the topics to create. Raises `_PartitionCountMismatch`."""
    missing = []
    for name in sorted(internal):
        found, expected = count_of(name), internal[name].partitions
        if found is None:
            missing.append(internal[name])
        elif found != expected:
            raise _PartitionCountMismatch(
                f"Existing topic {name} has different number of partitions: expected {expected}, "
                f"found {found}"
            )
    return tuple(missing)


# -- repartition topics ----------------------------------------------------------------------


def _repartition_counts(topology: Topology, count_of: PartitionCount) -> dict[str, int]:
    """Return the partition counts of repartition topics: as specified, or as derived.

    A subtopology is visited when the counts of all its sources are known, or of some if only loops
    are left. Linear in the size of the topology, however long its chains.
    """
    counts = {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    _Flow(topology, counts, count_of).settle()
    unfed = [
        topic.name
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.name not in counts
    ]
    if unfed:
        raise InvalidTopology(
            "Failed to compute number of partitions for all repartition topics: "
            f"{_some(unfed)} is never used as a sink topic, or there is a loop."
        )
    return counts


class _Flow:
    """Propagates partition counts from the sources of subtopologies to their sinks."""

    def __init__(
        self, topology: Topology, counts: dict[str, int], count_of: PartitionCount
    ) -> None:
        self._counts = counts
        self._count_of = count_of
        self._subtopologies = {each.subtopology_id: each for each in topology.subtopologies}
        self._readers: dict[str, list[str]] = {}
        self._open: dict[str, int] = {}
        for each in topology.subtopologies:
            unknown = {t.name for t in each.repartition_source_topics if t.name not in counts}
            self._open[each.subtopology_id] = len(unknown)
            for name in sorted(unknown):
                self._readers.setdefault(name, []).append(each.subtopology_id)
        self._ready = deque(each for each, count in self._open.items() if count == 0)
        self._partial = deque(each for each, count in self._open.items() if count)

    def settle(self) -> None:
        """Continue until no more counts can be derived."""
        while self._ready or self._partial:
            waiting = self._ready or self._partial
            self._pass_on(self._subtopologies[waiting.popleft()])

    def _pass_on(self, subtopology: Subtopology) -> None:
        outer = map(self._count_of, subtopology.source_topics)
        inner = (self._counts.get(topic.name) for topic in subtopology.repartition_source_topics)
        largest = max((each for each in (*outer, *inner) if each is not None), default=None)
        if largest is None:
            return
        for name in subtopology.repartition_sink_topics:
            if name not in self._counts:
                self._counts[name] = largest
                self._found(name)

    def _found(self, name: str) -> None:
        for reader in self._readers.get(name, ()):
            self._open[reader] -= 1
            (self._partial if self._open[reader] else self._ready).append(reader)


# -- copartition groups ----------------------------------------------------------------------


def _copartition(topology: Topology, counts: dict[str, int], known: Callable[[str], int]) -> None:
    """Give the repartition topics of each copartition group the count of its other topics."""
    fixed = {
        topic.name: bool(topic.partitions)
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
    }
    for each in topology.subtopologies:
        for group in each.copartitioned():
            if group:
                _copartition_group(group, fixed, counts, known)


def _copartition_group(
    group: frozenset[str],
    fixed: Mapping[str, bool],
    counts: dict[str, int],
    known: Callable[[str], int],
) -> None:
    inner = {name: known(name) for name in sorted(group) if name in fixed}
    outer = {name: known(name) for name in sorted(group) if name not in fixed}
    said = {name: count for name, count in inner.items() if fixed[name]}
    shared = _same(outer or said) if outer or said else max(inner.values())
    for name, count in said.items():
        if count != shared:
            raise _PartitionCountMismatch(
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{shared}] of the source topic."
            )
    counts.update(dict.fromkeys(inner, shared))


def _same(counts: Mapping[str, int]) -> int:
    found = set(counts.values())
    if len(found) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in counts.items())
        raise _PartitionCountMismatch(
            f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        )
    return found.pop()


def _some(names: Iterable[str]) -> str:
    """Return a short list of names for a message."""
    listed = list(dict.fromkeys(names))
    rest = len(listed) - _NAMED_MAX
    text = ", ".join(listed[:_NAMED_MAX])
    return f"{text} and {rest} additional topics" if rest > 0 else text
