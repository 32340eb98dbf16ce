"""Offsets written by hand are what the codec writes, and are replayed as its records are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.decision import Origin
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.committed import NewOffsets, OffsetCommits
from ottla.coordinators.groups.offsets.rules import Commit
from ottla.protocol.internal.framing import Versioned, encode_key, encode_value
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch, build_keyed_batch
from ottla.protocol.types import NO_TIMESTAMP, ZERO_UUID, Millis, Offset, Uuid

INT64 = st.integers(-1, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
IDS = st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(Uuid)
PARTITIONS = st.lists(
    st.builds(
        OffsetCommitRequestPartition,
        partition_index=INT32,
        committed_offset=INT64,
        committed_leader_epoch=st.integers(-1, 2**31 - 1),
        committed_metadata=st.none() | st.text(max_size=300),
    ),
    min_size=1,
    max_size=4,
)
TOPICS = st.builds(NewOffsets, st.text(max_size=20), IDS, PARTITIONS)
COMMITS = st.lists(TOPICS, min_size=1, max_size=3)
TIMES = st.integers(0, 2**62)


def commits(
    machine: GroupMachine, group: str, topics: list[NewOffsets], now: int, expires: int
) -> OffsetCommits:
    commit = Commit(topics, Millis(expires), OffsetCommitResponse())
    found = machine.commits(group, commit, Millis(now))
    assert found is not None
    return found


def one(offset: int, topic: str = "t", index: int = 0) -> list[NewOffsets]:
    return [NewOffsets(topic, ZERO_UUID, [OffsetCommitRequestPartition(index, offset, 1)])]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), COMMITS, TIMES, st.just(NO_TIMESTAMP) | TIMES)
def test_the_bytes_are_those_of_the_codec(
    group: str, topics: list[NewOffsets], now: int, expires: int
) -> None:
    packed = commits(GroupMachine(), group, topics, now, expires)
    version = 4 if expires == NO_TIMESTAMP else 1
    wanted = [
        (
            encode_key(OffsetCommitKey(group, topic, each.partition_index)),
            encode_value(
                Versioned(
                    OffsetCommitValue(
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                        now,
                        expires,
                        topic_id,
                    ),
                    version,
                )
            ),
        )
        for topic, topic_id, partitions in topics
        for each in partitions
    ]
    assert packed.pairs() == wanted


@settings(max_examples=60, deadline=None)
@given(COMMITS, st.just(NO_TIMESTAMP) | TIMES, st.none() | st.just(Producer(7, 3)))
def test_offsets_taken_at_once_are_as_if_read_from_the_log(
    topics: list[NewOffsets], expires: int, producer: Producer | None
) -> None:
    live, loaded = GroupMachine(), GroupMachine()
    first = one(1, topics[0].topic, topics[0].partitions[0].partition_index)
    for machine in (live, loaded):
        # There before, so that one is replaced and others are kept.
        commits(machine, "g", [*first, *one(3, "kept")], 5, -1).replay(Offset(0), None)
    packed = commits(live, "g", topics, 1000, expires)
    packed.replay(Offset(10), producer)
    for at, (key, value) in enumerate(packed.pairs(), 10):
        loaded.replay(decode_group_record(key, value), Origin(Offset(at), producer))
    assert live.offsets.committed == loaded.offsets.committed
    assert live.offsets.pending == loaded.offsets.pending
    assert set(live.groups) == set(loaded.groups) == {"g"}


def test_a_view_taken_before_does_not_see_a_commit() -> None:
    machine = GroupMachine()
    commits(machine, "g", one(1), 5, -1).replay(Offset(0), None)
    before = machine.view()
    commits(machine, "g", one(2), 6, -1).replay(Offset(1), None)
    assert before.offsets["g"]["t", 0].offset == 1
    assert machine.view().offsets["g"]["t", 0].offset == 2


PAIRS = st.lists(
    st.tuples(st.binary(max_size=2000), st.none() | st.binary(max_size=2000)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(PAIRS, TIMES, st.none() | st.just(Producer(7, 3)), st.sampled_from(Compression))
def test_a_batch_of_pairs_is_the_batch_of_their_records(
    pairs: list[tuple[bytes, bytes | None]],
    now: int,
    producer: Producer | None,
    compression: Compression,
) -> None:
    records = [Record(Offset(at), Millis(now), key, value) for at, (key, value) in enumerate(pairs)]
    wanted = build_batch(records, compression=compression)
    if producer is not None:
        wanted = build_batch(
            records, compression=compression, producer=producer, is_transactional=True
        )
    assert build_keyed_batch(pairs, Millis(now), producer, compression) == wanted


def test_a_batch_of_many_pairs_too() -> None:
    """From the 64th on the delta of an offset takes two bytes."""
    pairs = [(b"key", b"value") for _ in range(200)]
    records = [Record(Offset(at), Millis(5), key, value) for at, (key, value) in enumerate(pairs)]
    assert build_keyed_batch(pairs, Millis(5)) == build_batch(records)
