"""The rules of a mirror: offset maps, batches to append, what follows the source."""

import asyncio
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.connection import ConnectionLost
from ottla.client.fetched import Fetched, read_fetched
from ottla.mirror import metadata_sync
from ottla.mirror.following import status_of
from ottla.mirror.linking import Ends, begin_link, resume_link
from ottla.mirror.offset_map import (
    EXACT_PER_BATCH_MAX,
    MapDiverged,
    Run,
    begin,
    extend,
    is_identity,
    recover,
    source_end,
    target_end,
    thin,
    translate,
)
from ottla.mirror.pieces import JOINED_RECORDS_MAX, filler, make_pieces, sequence_at, stamp
from ottla.mirror.records_of_state import (
    CopiedAcls,
    Link,
    decode,
    encode,
    partition_key,
    partition_of,
)
from ottla.mirror.state_log import chunks
from ottla.mirror.topic_rules import (
    TopicFacts,
    copied_settings,
    is_selected,
    may_fill,
    plan_acls,
    plan_commits,
    plan_topic,
)
from ottla.protocol.records.batch import Compression, is_crc_valid, read_header
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.security.acl import Acl, AclOperation, PatternType, PermissionType, ResourceType

AT = TopicPartition("orders", 0)
OURS = Producer(77, 0, 5)

# -- offset maps -------------------------------------------------------------------

batches_of_offsets = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=30)
"""Batches of the source: for each offset whether a record is there."""


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for each in offsets:
        if found and sum(found[-1]) == each:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((each, 1))
    return found


@given(batches_of_offsets, st.integers(0, 9), st.integers(0, 9))
def test_offsets_are_translated_to_the_first_record_at_or_after_them(
    batches: list[list[bool]], source: int, target: int
) -> None:
    runs, position, records = begin(source, target), source, list[int]()
    stored = runs
    for batch in batches:
        there = [position + n for n, is_there in enumerate(batch) if is_there]
        position += len(batch)
        if there:
            runs = extend(runs, ranges_of(there), position)
            records += there
        if runs[-1].source != stored[-1].source:
            stored = runs  # as a mirror writes it: only if there is a new gap
    for offset in range(position + 2):
        before = sum(each < offset for each in records)
        assert translate(runs, offset) == target + before
    assert target_end(runs) == target + len(records)
    recovered = recover(stored, target_end(runs))
    assert source_end(recovered) <= position
    assert all(each < source_end(recovered) for each in records), "nothing is copied twice"
    assert not [each for each in records if each >= source_end(recovered)]


@given(batches_of_offsets, st.data())
def test_copy_that_was_cut_off_resumes_at_the_first_record_that_is_missing(
    batches: list[list[bool]], data: st.DataObject
) -> None:
    runs, position, ends = begin(0, 0), 0, [(0, 0)]
    for batch in batches:
        there = [position + n for n, is_there in enumerate(batch) if is_there]
        position += len(batch)
        if there:
            runs = extend(runs, ranges_of(there), position)
            ends.append((target_end(runs), there[-1] + 1))
    end, following = data.draw(st.sampled_from(ends))
    resumed = source_end(recover(runs, end))
    assert following <= resumed or end == 0
    missing = [each for number, each in enumerate(_records(batches)) if number >= end]
    assert not missing or following <= resumed <= missing[0]


def _records(batches: list[list[bool]]) -> list[int]:
    flat = [each for batch in batches for each in batch]
    return [offset for offset, is_there in enumerate(flat) if is_there]


def test_offsets_without_gaps_are_preserved() -> None:
    runs = extend(extend(begin(0, 0), [(0, 10)], 10), [(10, 5)], 15)
    assert runs == (Run(0, 0, 15),) and is_identity(runs)
    assert not is_identity(extend(runs, [(16, 1)], 17))
    assert not is_identity(begin(5, 0))


def test_batch_with_many_holes_is_mapped_coarsely_and_never_skips() -> None:
    holes = [(2 * n, 1) for n in range(EXACT_PER_BATCH_MAX + 1)]
    following = 2 * len(holes)
    runs = extend(begin(0, 0), holes, following)
    assert len(runs) == 2 and target_end(runs) == len(holes)
    assert translate(runs, 100) == 1
    assert translate(runs, following) == len(holes)
    assert source_end(recover(runs, len(holes))) == following


def test_thinned_map_translates_backwards_only() -> None:
    runs = begin(0, 0)
    for n in range(40):
        runs = extend(runs, [(3 * n, 2)], 3 * n + 2)
    few = thin(runs, 20)
    assert len(few) < len(runs) and (few[0], few[-1]) == (runs[0], runs[-1])
    for offset in range(130):
        assert translate(few, offset) <= translate(runs, offset)
    with pytest.raises(MapDiverged):
        recover(few, 3)


def test_target_that_ends_before_the_copy_began_is_diverged() -> None:
    with pytest.raises(MapDiverged):
        recover(begin(0, 10), 9)


# -- batches -----------------------------------------------------------------------


def records_from(first: int, count: int) -> list[Record]:
    return [
        Record(Offset(first + n), Millis(1000 + n), b"k%d" % n, b"v" * 10, (Header("h", b"1"),))
        for n in range(count)
    ]


def fetched(*batches: bytes, offset: int = 0) -> Fetched:
    return read_fetched(AT, Offset(offset), b"".join(batches), end_offset=Offset(10_000))


@pytest.mark.parametrize("codec", list(Compression))
def test_whole_batch_is_sent_on_with_only_its_producer_changed(codec: Compression) -> None:
    source = build_batch(
        records_from(40, 50),
        base_offset=40,
        leader_epoch=3,
        compression=codec,
        producer=Producer(5, 1, 9),
        is_transactional=True,
    )
    (piece,) = make_pieces(fetched(source, offset=40))
    assert (piece.count, piece.ranges, piece.following) == (50, [(40, 50)], 90)
    data = stamp(piece, OURS)
    header = read_header(data)
    assert data[61:] == source[61:]
    assert is_crc_valid(data, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == OURS
    assert (header.base_offset, header.is_transactional) == (0, False)
    assert header.compression is codec
    assert [each[1:] for each in read_records(data)] == [each[1:] for each in records_from(40, 50)]


def test_batch_with_holes_is_built_anew_without_them() -> None:
    left = [each for each in records_from(0, 60) if each.offset % 3]
    (piece,) = make_pieces(fetched(build_batch(left, last_offset_delta=63)))
    header = read_header(piece.data)
    assert (header.records_count, header.last_offset_delta) == (40, 39)
    assert piece.ranges == [(n, 2) for n in range(1, 60, 3)]
    assert piece.following == 64
    assert [each[1:] for each in read_records(piece.data)] == [each[1:] for each in left]


def test_fetch_in_the_middle_of_a_batch_leaves_out_what_was_copied() -> None:
    (piece,) = make_pieces(fetched(build_batch(records_from(0, 60)), offset=50))
    assert (piece.count, piece.ranges) == (10, [(50, 10)])


def test_append_time_of_the_source_becomes_the_timestamp_of_the_records() -> None:
    source = build_batch(records_from(0, 40), append_time=99_000)
    (piece,) = make_pieces(fetched(source))
    assert {each.timestamp for each in read_records(piece.data)} == {99_000}
    assert not read_header(piece.data).is_log_append_time


def test_small_batches_of_one_codec_are_joined_up_to_a_bound() -> None:
    many = [
        build_batch(records_from(n, 1), base_offset=n, compression=Compression.GZIP)
        for n in range(JOINED_RECORDS_MAX + 5)
    ]
    pieces = make_pieces(fetched(*many))
    assert [each.count for each in pieces] == [JOINED_RECORDS_MAX, 5]
    assert pieces[0].ranges == [(0, JOINED_RECORDS_MAX)]
    other = build_batch(records_from(1, 1), base_offset=1)
    assert len(make_pieces(fetched(many[0], other))) == 2


def test_sequence_wraps_as_kafkas_does() -> None:
    assert sequence_at(2**31 - 1 + 10, 10) == 2**31 - 1
    assert sequence_at(2**31 + 10, 10) == 0


def test_filler_is_small_and_has_the_offsets_asked_for() -> None:
    piece = filler(100, 50_000, 7000)
    header = read_header(piece.data)
    assert (header.records_count, header.max_timestamp) == (50_000, 7000)
    assert len(piece.data) < 200_000
    assert piece.ranges == [(100, 50_000)]


# -- links -------------------------------------------------------------------------

TOPIC = TopicFacts("id", 1, {})


def link(topic: TopicFacts = TOPIC, **ends: int) -> Link | str:
    at = {AT: ends.get("start", 0)}, {AT: 0}, {AT: ends.get("end", 0)}
    return begin_link(topic, AT, Ends(*at), fill_max=1000, may_append=bool(ends.get("may")))


def test_empty_target_is_filled_up_to_the_first_offset_of_the_source() -> None:
    assert link(start=0) == Link(topic_id="id", runs=begin(0, 0))
    assert link(start=900) == Link(topic_id="id", runs=begin(0, 0), fill_to=900)
    assert link(start=1001) == Link(topic_id="id", runs=begin(1001, 0))
    compacted = TopicFacts("id", 1, {"cleanup.policy": "compact"})
    assert link(compacted, start=900) == Link(topic_id="id", runs=begin(900, 0))


def test_target_with_foreign_records_is_refused_unless_asked_for() -> None:
    assert isinstance(link(end=5), str)
    assert link(end=5, may=1) == Link(topic_id="id", runs=begin(0, 5))


def test_resumed_link_begins_behind_markers_that_were_read() -> None:
    stored = Link(topic_id="id", runs=begin(0, 0), position=12, position_end=10)
    assert resume_link(stored, TOPIC, 10) == (
        Link(topic_id="id", runs=(Run(0, 0, 10),), position=12, position_end=10),
        12,
    )
    resumed = resume_link(stored, TOPIC, 11)
    assert not isinstance(resumed, str) and resumed[1] == 11
    assert isinstance(resume_link(stored, TopicFacts("new", 1, {}), 10), str)


def test_status_of_a_partition_counts_offsets_that_are_missing() -> None:
    stored = Link(topic_id="id", runs=begin(0, 0))
    found = status_of(AT, stored, 25, 20)
    assert (found.position, found.lag, found.is_identity) == (20, 5, True)
    read = Link(topic_id="id", runs=begin(0, 0), position=25, position_end=20)
    assert status_of(AT, read, 25, 20).lag == 0


def test_state_records_are_read_back() -> None:
    written = Link(topic_id="id", runs=(Run(0, 0, 5), Run(9, 5, 1)), fill_to=3)
    assert decode(encode(written), Link) == written
    assert partition_of(partition_key(TopicPartition("a/b", 7))) == TopicPartition("a/b", 7)
    assert partition_of(b"acls") is None


# -- topics, ACLs, groups ------------------------------------------------------------


def test_selected_are_whole_names_and_no_internal_topics() -> None:
    pattern = re.compile("orders|pay.*")
    assert is_selected("payments", pattern, is_internal=False)
    for name in ("orders2", "__consumer_offsets", "ottla-mirror.mirror"):
        assert not is_selected(name, re.compile("orders|.*s|ottla.*"), is_internal=False) or (
            name == "orders2"
        )
    assert not is_selected("orders2", pattern, is_internal=False)
    assert not is_selected("orders", pattern, is_internal=True)


def test_topic_settings_follow_the_source_except_those_of_the_cluster() -> None:
    source = TopicFacts("a", 3, {"retention.ms": "5", "min.insync.replicas": "2"})
    target = TopicFacts("b", 1, {"retention.ms": "6", "segment.bytes": "99"})
    changes = plan_topic(source, target)
    assert changes.partitions == 3
    assert changes.settings == {"retention.ms": "5", "segment.bytes": None}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    assert copied_settings(stamped) == {}
    assert copied_settings(stamped, is_final=True) == stamped
    assert plan_topic(target, target).partitions is None


def test_compacted_topics_are_not_filled() -> None:
    assert may_fill({}, 5, 10)
    assert not may_fill({"cleanup.policy": "compact,delete"}, 5, 10)
    assert not may_fill({}, 11, 10) and not may_fill({}, 0, 10)


def acl(name: str, kind: int = ResourceType.TOPIC, pattern: int = PatternType.LITERAL) -> Acl:
    return Acl(kind, name, pattern, "User:a", "*", AclOperation.READ, PermissionType.ALLOW)


def test_acls_are_created_once_and_only_copied_ones_are_deleted() -> None:
    topics = re.compile("orders")
    source = [acl("orders"), acl("other"), acl("g", ResourceType.GROUP), acl("x", 4)]
    created, deleted = plan_acls(source, [acl("mine")], [], topics)
    assert (set(created), deleted) == ({acl("orders"), acl("g", ResourceType.GROUP)}, [])
    target = [acl("mine"), acl("orders")]
    assert plan_acls([], target, [acl("orders"), acl("gone")], topics) == ([], [acl("orders")])
    assert plan_acls([acl("*")], [], [], topics)[0] == [acl("*")]


def test_committed_offsets_of_consumers_in_the_target_are_left_alone() -> None:
    assert plan_commits({AT: 5}, {}, {}) == {AT: 5}
    assert plan_commits({AT: 5}, {AT: 5}, {}) == {}
    assert plan_commits({AT: 4}, {AT: 5}, {AT: 5}) == {AT: 4}, "reset in the source"
    assert plan_commits({AT: 9}, {AT: 7}, {AT: 5}) == {}, "a consumer moved it"
    assert plan_commits({AT: 9}, {AT: 7}, {}) == {AT: 9}, "after a restart: forward"
    assert plan_commits({AT: 6}, {AT: 7}, {}) == {}


def test_status_of_a_closed_mirror_is_as_it_was_when_it_was_closed() -> None:
    closed = Link(topic_id="x", runs=(Run(0, 0, 20),), position=20, position_end=20)
    # Clients have written five records to the target, others three to the source.
    assert status_of(AT, closed, 23, 25).position == 25
    found = status_of(AT, closed, 23, 25, is_closed=True)
    assert (found.position, found.lag, found.target_end) == (20, 3, 20)


# -- the state topic ---------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 60))
def test_state_is_written_in_batches_that_a_broker_takes(values: list[bytes], most: int) -> None:
    records = {b"%02d" % number: value for number, value in enumerate(values)}
    parts = list(chunks(records, most))
    assert [each for part in parts for each in part] == list(records.items())
    for part in parts:
        assert len(part) == 1 or sum(len(k) + len(v) for k, v in part) <= most
    for one, other in itertools.pairwise(parts):
        size = sum(len(k) + len(v) for k, v in [*one, other[0]])
        assert size > most, "no more batches than are needed"


def test_acls_are_recorded_before_they_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = Acl(
        ResourceType.GROUP, "g", PatternType.LITERAL, "User:a", "*", AclOperation.READ,
        PermissionType.ALLOW,
    )  # fmt: skip
    recorded: list[CopiedAcls] = []

    async def listed(cluster: str, wanted: object) -> list[Acl]:
        return [acl] if cluster == "source" else []

    async def killed(cluster: str, acls: object) -> None:
        raise ConnectionLost("killed here")

    async def record(acls: CopiedAcls) -> None:
        recorded.append(acls)

    monkeypatch.setattr(metadata_sync, "list_acls", listed)
    monkeypatch.setattr(metadata_sync, "create_acls", killed)
    clusters = metadata_sync.Clusters("source", "target")  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost):
        asyncio.run(metadata_sync.sync_acls(clusters, CopiedAcls(), re.compile(".*"), record))
    assert recorded == [CopiedAcls((acl,))]
