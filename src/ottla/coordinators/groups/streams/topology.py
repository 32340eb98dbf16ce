"""The topology of a streams application (KIP-1071): its subtopologies and the topics they need.

A member sends it when it joins; that of the first member is stored as the group's, and all others
must have the same. Messages and records have the same shape and become the same immutable value
here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import msgspec

from ottla.coordinators.groups.errors import InvalidTopology
from ottla.coordinators.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.protocol.internal import streams_group_records as records
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.storage.directory.partition_names import is_topic_name

PROHIBITED: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""Kafka's internal topics, which no application may read or write."""


class InternalTopic(msgspec.Struct, frozen=True):
    """A topic that is created for the application.

    ``partitions`` is 0 if other topics determine it, and always for a changelog;
    ``replication_factor`` 0 means the cluster's default.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(msgspec.Struct, frozen=True):
    """Topics that must have equal partition counts, by their index in the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(msgspec.Struct, frozen=True):
    """A part of the topology that runs as tasks, one for each partition it reads."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def is_stateful(self) -> bool:
        """Whether its tasks have state that standbys can copy."""
        return bool(self.state_changelog_topics)

    def reads(self) -> Iterator[str]:
        """Yield every topic whose partitions become tasks."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    def topics(self) -> Iterator[str]:
        """Yield every topic that it names."""
        yield from self.reads()
        yield from self.repartition_sink_topics
        for topic in self.state_changelog_topics:
            yield topic.name

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Yield the names of topics that must have equal partition counts."""
        for group in self.copartition_groups:
            sources = [self.source_topics[each] for each in group.source_topics]
            inner = [
                self.repartition_source_topics[each].name
                for each in group.repartition_source_topics
            ]
            yield frozenset((*sources, *inner))


class Topology(msgspec.Struct, frozen=True, dict=True):
    """A topology. ``subtopologies`` are sorted by id, so that equal topologies compare equal."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """The topics that must exist for tasks to run."""
        changelogs = (t.name for each in self.subtopologies for t in each.state_changelog_topics)
        return frozenset((*self.subtopology_of, *changelogs))

    @cached_property
    def subtopology_of(self) -> dict[str, str]:
        """The subtopology that reads each topic."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.reads()}


# -- messages and records --------------------------------------------------------------------


def read_topology(said: messages.Topology | records.StreamsGroupTopologyValue) -> Topology:
    """Return the topology of a request or a record."""
    return Topology(
        said.epoch,
        tuple(sorted(map(_subtopology, said.subtopologies), key=lambda s: s.subtopology_id)),
    )


def _subtopology(said: messages.Subtopology | records.Subtopology) -> Subtopology:
    return Subtopology(
        said.subtopology_id,
        tuple(said.source_topics),
        tuple(said.source_topic_regex),
        tuple(map(_topic, said.state_changelog_topics)),
        tuple(said.repartition_sink_topics),
        tuple(map(_topic, said.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in said.copartition_groups
        ),
    )


def _topic(said: messages.TopicInfo | records.TopicInfo) -> InternalTopic:
    configs = tuple((each.key, each.value) for each in said.topic_configs)
    return InternalTopic(said.name, said.partitions, said.replication_factor, configs)


def topology_value(topology: Topology) -> records.StreamsGroupTopologyValue:
    """Return a topology as the value of a record."""
    return records.StreamsGroupTopologyValue(
        topology.epoch,
        [
            records.Subtopology(
                each.subtopology_id,
                list(each.source_topics),
                list(each.source_topic_regex),
                list(map(_info, each.state_changelog_topics)),
                list(each.repartition_sink_topics),
                list(map(_info, each.repartition_source_topics)),
                [
                    records.CopartitionGroup(
                        list(group.source_topics),
                        list(group.source_topic_regex),
                        list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _info(topic: InternalTopic) -> records.TopicInfo:
    configs = [records.TopicConfig(key, value) for key, value in topic.configs]
    return records.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


# -- what no application has -----------------------------------------------------------------


def check_topology(topology: Topology) -> None:
    """Raise `InvalidTopology` for one that contradicts itself or uses Kafka's internal topics.

    An accepted topology can be configured (`topics.configure`) without further checks.
    """
    if topology.epoch < 0:
        raise InvalidTopology(f"The topology epoch is {topology.epoch}, but must not be negative.")
    names = dict.fromkeys(name for each in topology.subtopologies for name in each.topics())
    prohibited = [name for name in names if name in PROHIBITED]
    if prohibited:
        raise InvalidTopology(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is "
            "prohibited."
        )
    invalid = [name[:300] for name in names if not is_topic_name(name)]
    if invalid:
        raise InvalidTopology(f"Topic names {','.join(invalid[:10])} are not valid topic names.")
    twice = _twice(each.subtopology_id for each in topology.subtopologies)
    if twice is not None:
        raise InvalidTopology(f"Subtopology {twice} is listed more than once.")
    for subtopology in topology.subtopologies:
        _check_subtopology(subtopology)


def _check_subtopology(subtopology: Subtopology) -> None:
    if not any(True for _ in subtopology.reads()):
        raise InvalidTopology(
            f"No source topics found for subtopology {subtopology.subtopology_id}"
        )
    _check_internal(subtopology.state_changelog_topics)
    _check_internal(subtopology.repartition_source_topics)
    for topic in subtopology.state_changelog_topics:
        if topic.partitions != 0:
            raise InvalidTopology(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is "
                f"set to {topic.partitions}."
            )
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            raise InvalidTopology(
                f"Repartition topic {topic.name} has {topic.partitions} partitions"
            )
    for group in subtopology.copartition_groups:
        if not (
            _are_within(group.source_topics, len(subtopology.source_topics))
            and _are_within(
                group.repartition_source_topics, len(subtopology.repartition_source_topics)
            )
        ):
            raise InvalidTopology(
                f"A copartition group of {subtopology.subtopology_id} names no source topic"
            )


def _check_internal(topics: tuple[InternalTopic, ...]) -> None:
    """Reject a topic or a config of one that is listed twice: neither may be chosen silently."""
    name = _twice(topic.name for topic in topics)
    if name is not None:
        raise InvalidTopology(f"Topic {name} is listed more than once.")
    for topic in topics:
        key = _twice(key for key, _ in topic.configs)
        if key is not None:
            raise InvalidTopology(f"Topic {topic.name} has {key} more than once.")


def _twice(texts: Iterable[str]) -> str | None:
    most = Counter(texts).most_common(1)
    return most[0][0] if most and most[0][1] > 1 else None


def _are_within(indexes: tuple[int, ...], count: int) -> bool:
    return all(0 <= index < count for index in indexes)
