"""Large commits are applied to the state when their group is first read."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.groups.offsets.commit_batch import REFUSED, CommitBatch, CommitTopic
from ottla.coordinators.groups.offsets.committed import (
    UNREAD_MIN,
    CommittedOffset,
    Offsets,
    TopicPartition,
    offsets_in,
)
from ottla.protocol.types import ZERO_UUID, Millis, Offset, Uuid

pytestmark = pytest.mark.engine

PARTITIONS = 40
ORDERS = CommitTopic("orders", ZERO_UUID, PARTITIONS)
OTHERS = CommitTopic("others", ZERO_UUID, PARTITIONS)
ID = Uuid(b"id of the topic!")
ORDERS_BY_ID = CommitTopic("orders", ID, PARTITIONS)


@dataclass
class Counted:
    """A commit that counts how often it is applied."""

    commit: CommitBatch
    applied: int = 0

    @property
    def count(self) -> int:
        return self.commit.count

    @property
    def offsets(self) -> list[tuple[TopicPartition, CommittedOffset]]:
        self.applied += 1
        return self.commit.offsets

    def replaces(self, earlier: "Counted") -> bool:
        return self.commit.replaces(earlier.commit)


def commit_of(*topics: tuple[CommitTopic, list[tuple[int, str]]], first: int = 0) -> Counted:
    """Return a commit; the offset of each partition is that of its record."""
    batch = CommitBatch("g", Millis(5), first, 4096)
    number = first
    for topic, entries in topics:
        data = bytearray([len(entries) + 1])
        for index, text in entries:
            data += struct.pack(">iqi", index, number, -1)
            data += bytes([len(text) + 1]) + text.encode() + b"\0"
            number += 1
        data.append(0)
        assert batch.add(topic, data, 0, len(data), bytearray()) != REFUSED
    batch.seal()
    return Counted(batch)


def plain(*indexes: int, first: int = 0, topic: CommitTopic = ORDERS) -> Counted:
    return commit_of((topic, [(index, "") for index in indexes]), first=first)


MANY = range(UNREAD_MIN)


def test_commit_that_is_replaced_is_never_applied() -> None:
    offsets, earlier, later = Offsets(), plain(*MANY, first=0), plain(*MANY, first=100)
    offsets.put_commit("g", earlier)
    offsets.put_commit("g", later)
    assert (earlier.applied, later.applied) == (0, 0)
    found = offsets.get("g", ("orders", 3))
    assert found is not None
    assert (found.offset, found.record_offset) == (103, Offset(103))
    assert len(offsets.of_group("g")) == UNREAD_MIN
    assert (earlier.applied, later.applied) == (0, 1)


def test_small_commit_is_applied_at_once() -> None:
    offsets, small = Offsets(), plain(*MANY[1:])
    offsets.put_commit("g", small)
    assert small.applied == 1


@pytest.mark.parametrize(
    "later",
    [
        plain(*range(1, UNREAD_MIN + 1), first=100),
        plain(*MANY, UNREAD_MIN, first=100),
        plain(*MANY, topic=OTHERS, first=100),
        commit_of((ORDERS, [(n, "") for n in MANY]), (OTHERS, [(0, "")]), first=100),
    ],
)
def test_commit_of_other_partitions_is_applied_after_the_earlier_one(later: Counted) -> None:
    offsets, plainly, earlier = Offsets(), Offsets(), plain(*MANY)
    for commit in (earlier, later):
        offsets.put_commit("g", commit)
        plainly.put_all("g", commit.commit.offsets)
    assert earlier.applied == 1
    assert offsets.committed == plainly.committed


def test_topic_named_by_its_id_is_the_same_topic() -> None:
    offsets, earlier = Offsets(), plain(*MANY)
    offsets.put_commit("g", earlier)
    offsets.put_commit("g", plain(*MANY, topic=ORDERS_BY_ID, first=100))
    found = offsets.get("g", ("orders", 0))
    assert found is not None
    assert (found.offset, found.topic_id, earlier.applied) == (100, ID, 0)


def test_view_keeps_what_it_was_taken_of() -> None:
    offsets = Offsets()
    views = []
    for first in (0, 100, 200):
        offsets.put_commit("g", plain(*MANY, first=first))
        views.append(offsets.groups)
    for number in (2, 0, 1):
        found = offsets_in(views[number], "g").get(("orders", 1))
        assert found is not None
        assert found.offset == number * 100 + 1


# -- against a plain model ---------------------------------------------------------

entries = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["", "", "m", "text"])), min_size=1, max_size=12
)
topics = st.lists(
    st.tuples(st.sampled_from([ORDERS, OTHERS]), entries),
    min_size=1,
    max_size=2,
    unique_by=lambda each: id(each[0]),
)
moves = st.lists(
    st.tuples(st.sampled_from(["commit", "again", "read", "remove"]), topics), max_size=12
)


@given(moves)
def test_offsets_are_those_of_commits_applied_one_after_the_other(steps: list) -> None:
    offsets, model, first = Offsets(), dict[TopicPartition, CommittedOffset](), 0
    last = [(ORDERS, [(n, "") for n in MANY])]
    for kind, found in steps:
        match kind:
            case "commit" | "again":
                last = found if kind == "commit" else last
                commit = commit_of(*last, first=first)
                first += commit.count
                offsets.put_commit("g", commit)
                model.update(commit.commit.offsets)
            case "read":
                assert dict(offsets.of_group("g")) == model
            case "remove" if model:
                place = min(model)
                offsets._remove("g", place)
                del model[place]
    assert dict(offsets.of_group("g")) == model
    assert dict(offsets.committed) == ({"g": offsets.of_group("g")} if model else {})
