"""The topics that a streams application needs, and the status if they do not fit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_harness import counting

from ottla.coordinators.groups.errors import InvalidTopology
from ottla.coordinators.groups.streams.records import topology_record
from ottla.coordinators.groups.streams.topics import Configured, Status, configure
from ottla.coordinators.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    check_topology,
    read_topology,
)
from ottla.protocol.codec import decode, encode
from ottla.protocol.internal.streams_group_records import StreamsGroupTopologyValue


def configured(topology: Topology, **counts: int) -> Configured:
    return configure(topology, {name.replace("_", "-"): n for name, n in counts.items()}.get)


def app(*subtopologies: Subtopology) -> Topology:
    return Topology(3, tuple(sorted(subtopologies, key=lambda each: each.subtopology_id)))


def sub(name: str, *sources: str, **fields: Any) -> Subtopology:
    return Subtopology(name, sources, **fields)


def inner(*names: str, partitions: int = 0) -> tuple[InternalTopic, ...]:
    return tuple(InternalTopic(name, partitions) for name in names)


COUNTING = read_topology(counting())


def test_partitions_flow_from_sources_to_repartition_topics_and_changelogs() -> None:
    found = configured(COUNTING, t=5)
    assert found.task_counts == {"0": 5, "1": 5}
    assert [(each.name, each.partitions) for each in found.missing] == [
        ("g-counts-changelog", 5),
        ("g-words-repartition", 5),
    ]
    assert found.problem is not None
    assert found.problem.status is Status.MISSING_INTERNAL_TOPICS
    assert (
        found.problem.detail
        == "Internal topics are missing: g-counts-changelog, g-words-repartition"
    )


def test_ready_once_all_topics_are_there() -> None:
    counts = {"t": 5, "g-words-repartition": 5, "g-counts-changelog": 5}
    found = configure(COUNTING, counts.get)
    assert found.is_ready()
    assert not found.missing
    assert set(found.internal) == {"g-words-repartition", "g-counts-changelog"}


def test_missing_sources_are_named_and_nothing_is_made() -> None:
    found = configured(app(sub("0", "d", "b", "a", "c", "e")), e=1)
    assert found.problem is not None
    assert found.problem.status is Status.MISSING_SOURCE_TOPICS
    assert found.problem.detail == "Source topics a, b, c and 1 additional topics are missing."
    assert not found.missing
    assert not found.task_counts


def test_existing_topic_with_other_partition_count_is_not_changed() -> None:
    found = configured(COUNTING, t=5, g_words_repartition=5, g_counts_changelog=4)
    assert found.problem is not None
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "g-counts-changelog" in found.problem.detail
    assert "expected 5, found 4" in found.problem.detail
    assert not found.missing
    assert not found.task_counts


def test_the_longest_source_decides_how_many_tasks_there_are() -> None:
    stores = inner("store")
    found = configured(app(sub("0", "a", "b", state_changelog_topics=stores)), a=2, b=7, store=7)
    assert found.is_ready()
    assert found.task_counts == {"0": 7}


def test_repartition_topic_gets_its_specified_partitions() -> None:
    found = configured(
        app(
            sub("0", "a", repartition_sink_topics=("r",)),
            sub("1", repartition_source_topics=inner("r", partitions=3)),
        ),
        a=8,
    )
    assert found.task_counts == {"0": 8, "1": 3}
    assert [(each.name, each.partitions) for each in found.missing] == [("r", 3)]


def test_numbers_flow_through_chains_whatever_the_order_of_subtopologies() -> None:
    length = 2000
    chain = [sub("s0000", "a", repartition_sink_topics=("r0000",))]
    for each in range(1, length):
        name, source = f"s{length - each:04}", f"r{each - 1:04}"
        chain.append(
            sub(
                name,
                repartition_source_topics=inner(source),
                repartition_sink_topics=(f"r{each:04}",),
            )
        )
    found = configured(app(*chain), a=6)
    assert set(found.task_counts.values()) == {6}


def test_sink_topics_get_the_partitions_of_their_sources() -> None:
    """Also if one of the sources is known before the other."""
    found = configured(
        app(
            sub("0", "a", repartition_source_topics=inner("r1"), repartition_sink_topics=("r2",)),
            sub("1", "b", repartition_sink_topics=("r1",)),
            sub("2", repartition_source_topics=inner("r2")),
        ),
        a=2,
        b=9,
    )
    assert found.task_counts == {"0": 9, "1": 9, "2": 9}


def test_repartition_loop_needs_an_external_source() -> None:
    loop = (
        sub("1", repartition_source_topics=inner("x"), repartition_sink_topics=("y",)),
        sub("2", repartition_source_topics=inner("y"), repartition_sink_topics=("x",)),
    )
    with pytest.raises(InvalidTopology, match="loop"):
        configured(app(sub("0", "a"), *loop), a=4)
    way_in = sub("0", "a", repartition_source_topics=inner("y"), repartition_sink_topics=("x",))
    assert configured(app(way_in, *loop[:1]), a=4).task_counts == {"0": 4, "1": 4}


def test_a_repartition_topic_that_nobody_writes_is_refused_also_if_it_exists() -> None:
    with pytest.raises(InvalidTopology, match="never used as a sink"):
        configured(app(sub("0", "a", repartition_source_topics=inner("r"))), a=4, r=4)


# -- copartition groups ----------------------------------------------------------------------


def joined(*, fixed: int = 0) -> Topology:
    """A join of topic ``b`` with the output of another subtopology that reads ``a``."""
    return app(
        sub("0", "a", repartition_sink_topics=("r",)),
        sub(
            "1",
            "b",
            repartition_source_topics=inner("r", partitions=fixed),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
    )


def test_a_repartition_topic_follows_the_topic_it_is_joined_with() -> None:
    found = configured(joined(), a=2, b=6)
    assert [(each.name, each.partitions) for each in found.missing] == [("r", 6)]
    assert found.task_counts == {"0": 2, "1": 6}


def test_repartition_topic_with_conflicting_count_does_not_fit() -> None:
    found = configured(joined(fixed=4), a=2, b=6)
    assert found.problem is not None
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "[4] of repartition topic [r]" in found.problem.detail


def test_sources_that_are_joined_must_have_equally_many_partitions() -> None:
    topology = app(sub("0", "a", "b", copartition_groups=(CopartitionGroup((0, 1)),)))
    assert configured(topology, a=3, b=3).is_ready()
    found = configured(topology, a=3, b=4)
    assert found.problem is not None
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "[{a=3, b=4}]" in found.problem.detail


def test_joined_repartition_topics_take_what_one_says_else_the_most() -> None:
    def both(left: int, right: int) -> Topology:
        return app(
            sub("0", "a", repartition_sink_topics=("r1",)),
            sub("1", "b", repartition_sink_topics=("r2",)),
            sub(
                "2",
                repartition_source_topics=(InternalTopic("r1", left), InternalTopic("r2", right)),
                copartition_groups=(CopartitionGroup((), (), (0, 1)),),
            ),
        )

    assert configured(both(0, 0), a=2, b=6).task_counts["2"] == 6
    assert configured(both(3, 0), a=2, b=6).task_counts["2"] == 3
    found = configured(both(3, 4), a=2, b=6)
    assert found.problem is not None
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS


# -- what no application has -----------------------------------------------------------------


TWO_VALUES = InternalTopic("s", configs=(("k", "1"), ("k", "2")))


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (app(sub("0", "__consumer_offsets")), "internal topics __consumer_offsets"),
        (app(sub("0", "a", repartition_sink_topics=("__transaction_state",))), "prohibited"),
        (app(sub("0", "no topic")), "not valid topic names"),
        (app(sub("0", "a", state_changelog_topics=inner("."))), "not valid topic names"),
        (app(sub("0", "a"), sub("0", "b")), "more than once"),
        (Topology(-1, (sub("0", "a"),)), "negative"),
        (app(sub("0", "a", state_changelog_topics=inner("s") * 2)), "Topic s is listed more"),
        (app(sub("0", "a", repartition_source_topics=inner("r") * 2)), "Topic r is listed more"),
        (app(sub("0", "a", state_changelog_topics=(TWO_VALUES,))), "has k more than once"),
        (app(sub("0", "a"), sub("1", repartition_sink_topics=("a",))), "No source topics"),
        (app(sub("0", "a", state_changelog_topics=inner("s", partitions=2))), "undefined"),
        (app(sub("0", "a", repartition_source_topics=inner("r", partitions=-1))), "-1"),
        (app(sub("0", "a", copartition_groups=(CopartitionGroup((1,)),))), "copartition"),
        (app(sub("0", "a", copartition_groups=(CopartitionGroup((-1,)),))), "copartition"),
        (app(sub("0", "a", copartition_groups=(CopartitionGroup((), (), (0,)),))), "copartition"),
    ],
)
def test_a_topology_that_contradicts_itself_is_refused(topology: Topology, words: str) -> None:
    with pytest.raises(InvalidTopology, match=words):
        check_topology(topology)
    with pytest.raises(InvalidTopology, match=words):
        configured(topology, a=1, b=1)


NAMES = st.sampled_from(["a", "b", "c", "r", "s"])
TOPICS = st.lists(
    st.builds(InternalTopic, NAMES, st.integers(0, 3), st.just(1), st.just((("k", "v"),))),
    max_size=2,
).map(tuple)
INDEXES = st.lists(st.integers(-1, 2), max_size=2).map(tuple)
TOPOLOGIES = st.builds(
    Topology,
    st.integers(0, 5),
    st.lists(
        st.builds(
            Subtopology,
            st.sampled_from(["0", "1", "2"]),
            st.lists(NAMES, max_size=2).map(tuple),
            st.just(()),
            TOPICS,
            st.lists(NAMES, max_size=2).map(tuple),
            TOPICS,
            st.lists(st.builds(CopartitionGroup, INDEXES, INDEXES, INDEXES), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(lambda subs: tuple(sorted(subs, key=lambda each: each.subtopology_id))),
)


@settings(max_examples=150, deadline=None)
@given(TOPOLOGIES, st.dictionaries(NAMES, st.integers(1, 4)))
def test_every_topology_is_configured_reported_or_rejected(
    topology: Topology, counts: dict[str, int]
) -> None:
    try:
        found = configure(topology, counts.get)
    except InvalidTopology:
        return
    if found.is_ready():
        assert topology.required_topics <= set(counts)
        assert set(found.task_counts) == {each.subtopology_id for each in topology.subtopologies}
    # The reported missing topics suffice: with them the application runs.
    after = {**counts, **{each.name: each.partitions for each in found.missing}}
    if found.missing:
        assert configure(topology, after.get).is_ready()


@settings(max_examples=50, deadline=None)
@given(TOPOLOGIES)
def test_a_record_brings_a_topology_back(topology: Topology) -> None:
    record = topology_record("g", topology)
    assert record.value is not None
    written = encode(record.value.message, 0)
    assert read_topology(decode(StreamsGroupTopologyValue, 0, written)) == topology
