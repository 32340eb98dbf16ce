"""The pure rules of tiered storage: states, lookup by epoch, lineage, copy and deletion plans."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.runtime.ports import Address, NewObject
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.tiering.client_address import client_address
from ottla.tiering.copy_plan import (
    Candidate,
    CopyLag,
    CopyState,
    first_remote_offset,
    group_copies,
    highest_remote_offset,
    plan_copy,
    segment_epochs,
    unfinished,
)
from ottla.tiering.lineage import epochs_with_records, is_within_lineage
from ottla.tiering.manifest import CorruptManifest, decode_manifest, encode_manifest
from ottla.tiering.metadata_cache import MetadataCache
from ottla.tiering.metadata_records import decode_event, encode_event, metadata_partition
from ottla.tiering.metadata_snapshot import decode_snapshot, encode_snapshot
from ottla.tiering.metadata_topic import backoff_s
from ottla.tiering.remote_retention import RemoteLogState, plan_remote_retention
from ottla.tiering.segment_metadata import (
    PartitionDeleteState,
    PartitionDeletion,
    SegmentId,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    is_valid_deletion,
    is_valid_transition,
)
from ottla.tiering.segment_objects import (
    CorruptCustomMetadata,
    ObjectKind,
    StoredObject,
    decode_objects,
    encode_objects,
    object_key,
    parse_key,
)
from ottla.tiering.segment_store import CONTENTS_BYTES_MAX, SizedObject, split_requests

TOPIC_ID = Uuid(bytes(range(16)))
AT = TopicIdPartition(TOPIC_ID, 3)
STARTED, FINISHED, DELETING, DELETED = SegmentState


def epochs(*entries: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in entries)


def segment(
    number: int,
    start: int,
    end: int,
    of: Sequence[tuple[int, int]] = (),
    *,
    state: SegmentState = STARTED,
    size: int = 100,
    timestamp: int = 1000,
) -> SegmentMetadata:
    return SegmentMetadata(
        SegmentId(AT, Uuid(number.to_bytes(16, "big"))),
        "t",
        Offset(start),
        Offset(end),
        Millis(timestamp),
        NodeId(1),
        Millis(5),
        size,
        epochs(*(of or [(0, start)])),
        state,
    )


def update(metadata: SegmentMetadata, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(metadata.segment_id, "t", Millis(6), state, NodeId(2))


def cache_of(*segments: SegmentMetadata) -> MetadataCache:
    """A cache with these segments, all copied in this order."""
    cache = MetadataCache()
    for each in segments:
        assert cache.add(each)
        assert cache.update(update(each, FINISHED))
    return cache


# -- states ------------------------------------------------------------------------


def test_segment_states_follow_kafkas_transitions() -> None:
    allowed = {
        (None, STARTED),
        (STARTED, FINISHED),
        (STARTED, DELETING),
        (FINISHED, DELETING),
        (DELETING, DELETED),
    }
    for state in (None, *SegmentState):
        for target in SegmentState:
            is_allowed = (state, target) in allowed or state is target
            assert is_valid_transition(state, target) is is_allowed, (state, target)


def test_partition_deletion_goes_from_marked_to_finished() -> None:
    marked, started, finished = PartitionDeleteState
    assert is_valid_deletion(None, marked)
    assert is_valid_deletion(marked, started)
    assert is_valid_deletion(started, finished)
    assert not is_valid_deletion(None, started)
    assert not is_valid_deletion(finished, marked)


# -- lookup ------------------------------------------------------------------------


def test_lookup_finds_only_finished_segments_of_the_epoch() -> None:
    first = segment(1, 0, 99, [(0, 0), (2, 50)])
    cache = MetadataCache()
    cache.add(first)
    assert cache.find(LeaderEpoch(0), Offset(10)) is None  # not copied yet
    cache.update(update(first, FINISHED))
    assert cache.find(LeaderEpoch(0), Offset(49)) is not None
    assert cache.find(LeaderEpoch(0), Offset(50)) is None  # written in epoch 2
    assert cache.find(LeaderEpoch(2), Offset(50)) is not None
    assert cache.find(LeaderEpoch(2), Offset(99)) is not None
    assert cache.find(LeaderEpoch(2), Offset(100)) is None
    assert cache.find(LeaderEpoch(1), Offset(50)) is None
    assert cache.highest_offset(LeaderEpoch(0)) == 49
    assert cache.highest_offset(LeaderEpoch(2)) == 99
    cache.update(update(first, DELETING))
    assert cache.find(LeaderEpoch(0), Offset(10)) is None
    assert [each.state for each in cache.of_epoch(LeaderEpoch(0))] == [DELETING]
    cache.update(update(first, DELETED))
    assert cache.all() == cache.of_epoch(LeaderEpoch(0)) == []


def test_segment_of_a_snapshot_that_is_still_being_copied_is_not_found() -> None:
    cache = MetadataCache()
    cache.load(segment(1, 0, 9))
    assert cache.find(LeaderEpoch(0), Offset(5)) is None
    assert [each.state for each in cache.all()] == [STARTED]


def test_segment_that_covers_others_makes_them_unreferenced() -> None:
    small, next_one, large = segment(1, 0, 9), segment(2, 10, 19), segment(3, 0, 29)
    cache = cache_of(small, next_one, large)
    for offset in (0, 15, 29):
        found = cache.find(LeaderEpoch(0), Offset(offset))
        assert found is not None
        assert found.segment_id == large.segment_id
    assert len(cache.of_epoch(LeaderEpoch(0))) == 3  # listed, so that they can be deleted


def test_overlapping_copy_of_a_second_leader_is_used_where_it_goes_further() -> None:
    first, second = segment(1, 0, 50), segment(2, 30, 80)
    cache = cache_of(first, second)
    assert _id_at(cache, 29) == first.segment_id
    assert _id_at(cache, 30) == _id_at(cache, 80) == second.segment_id


def _id_at(cache: MetadataCache, offset: int) -> SegmentId | None:
    found = cache.find(LeaderEpoch(0), Offset(offset))
    return None if found is None else found.segment_id


def test_late_update_of_a_deleted_segment_is_dropped() -> None:
    one = segment(1, 0, 9)
    cache = MetadataCache()
    cache.add(one)
    assert cache.update(update(one, DELETING))
    assert not cache.update(update(one, FINISHED))  # the old leader comes back
    assert cache.update(update(one, DELETED))
    assert not cache.update(update(one, FINISHED))
    assert cache.find(LeaderEpoch(0), Offset(5)) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_every_history_of_updates_keeps_lookups_within_readable_segments(
    steps: list[tuple[int, int]],
) -> None:
    segments = [segment(n, n * 10, n * 10 + 14, [(0, n * 10)]) for n in range(6)]
    cache = MetadataCache()
    for number, state in steps:
        if state == STARTED:
            cache.add(segments[number])
        else:
            cache.update(update(segments[number], SegmentState(state)))
    listed = {each.segment_id for each in cache.of_epoch(LeaderEpoch(0))}
    assert listed == {each.segment_id for each in cache.all()}
    for offset in range(80):
        found = cache.find(LeaderEpoch(0), Offset(offset))
        if found is not None:
            assert found.state is FINISHED
            assert found.start_offset <= offset <= found.end_offset


# -- lineage -----------------------------------------------------------------------


def test_epochs_that_start_together_count_as_the_last() -> None:
    assert epochs_with_records(epochs((0, 0), (4, 40), (5, 60), (6, 60))) == {0: 0, 4: 40, 6: 60}


@pytest.mark.parametrize(
    ("of", "start", "end", "expected"),
    [
        ([(1, 10)], 10, 19, True),
        ([(1, 15), (2, 20)], 15, 30, True),
        ([(1, 15), (2, 25)], 15, 30, False),  # epoch 2 began elsewhere
        ([(1, 15)], 15, 25, False),  # epoch 1 ended at 19 here
        ([(2, 15)], 15, 25, False),  # epoch 2 began at 20 here
        ([(3, 20)], 20, 25, False),  # no such epoch
        ([(4, 40)], 40, 55, True),
        ([(4, 40)], 40, 60, False),  # beyond the end of the log
        ([(1, 5)], 5, 19, True),  # the log was trimmed to 10 since
        ([(0, 0), (1, 5)], 0, 19, True),  # so it was before
        ([(0, 0)], 0, 4, False),  # entirely before the log's history
        ([(2, 20), (4, 40)], 20, 45, True),
        ([(1, 15), (4, 40)], 15, 45, False),  # epoch 2 is missing
    ],
)
def test_lineage_of_a_segment(
    of: list[tuple[int, int]], start: int, end: int, expected: bool
) -> None:
    lineage = epochs_with_records(epochs((1, 10), (2, 20), (4, 40)))
    assert is_within_lineage(segment(1, start, end, of), Offset(60), lineage) is expected


# -- copying -----------------------------------------------------------------------


class Local:
    """A local segment of 100 bytes; the newest of its records is ten times as old as its base."""

    def __init__(self, base: int) -> None:
        self.base_offset = Offset(base)
        self.size = 100
        self.largest_timestamp = Millis(10 * base)


@pytest.mark.parametrize(
    ("ms", "size", "now", "bases"),
    [
        (0, 10_000, 0, [0, 10, 20, 30]),
        (10_000, 0, 500, [0, 10, 20, 30]),
        (300, -1, 400, [0, 10]),
        (300, -1, 299, []),
        (-1, 300, 400, [0, 10]),
        (-1, 401, 400, []),
        (301, 400, 400, [0]),
        (300, 400, 400, [0, 10]),
        (-1, -1, 10**9, []),
        (10_000, -1, 150, []),
        (10_000, -1, -1, [0, 10, 20, 30]),
    ],
)
def test_copies_wait_for_the_lag_of_time_or_of_size(
    ms: int, size: int, now: int, bases: list[int]
) -> None:
    """0 of either is at once; -1 of one leaves the other; -1 of both is never (KIP-1241)."""
    local = [Local(base) for base in range(0, 50, 10)]
    state = CopyState(Offset(0), Offset(0), Offset(50))
    found = plan_copy(local, state, CopyLag(ms, size), Millis(now))
    assert [each.base_offset for each in found] == bases


def test_copies_go_on_in_order_if_a_later_segment_is_older() -> None:
    """A segment that is not due keeps back all after it: remote storage has no gaps."""
    local = [Local(base) for base in range(0, 50, 10)]
    local[1].largest_timestamp = Millis(390)
    state = CopyState(Offset(0), Offset(0), Offset(50))
    found = plan_copy(local, state, CopyLag(200, -1), Millis(400))
    assert [each.base_offset for each in found] == [0]


def test_copy_plan_takes_sealed_segments_below_the_last_stable_offset() -> None:
    segments = [segment(n, n * 10, n * 10 + 9) for n in range(5)]

    local = [Local(each.start_offset) for each in segments]

    def plan(remote_end: int, log_start: int, stable: int) -> list[Candidate]:
        state = CopyState(Offset(remote_end), Offset(log_start), Offset(stable))
        return plan_copy(local, state, CopyLag(0, -1), Millis(0))

    assert plan(0, 0, 50) == [(0, 10), (10, 20), (20, 30), (30, 40)]  # never the active one
    assert plan(0, 0, 39) == [(0, 10), (10, 20), (20, 30)]  # 30..39 is not stable yet
    assert plan(20, 0, 50) == [(20, 30), (30, 40)]
    assert plan(0, 25, 50) == [(20, 30), (30, 40)]  # the log starts inside a segment
    assert plan(0, 0, 0) == []


def test_copies_are_grouped_by_size_and_number() -> None:
    def grouped(sizes: list[int], bytes_max: int) -> list[list[int]]:
        candidates = [Candidate(Offset(n), Offset(n + 1)) for n in range(len(sizes))]
        by_offset = {Offset(n): size for n, size in enumerate(sizes)}
        found = list(group_copies(candidates, by_offset, bytes_max))
        assert [each for group in found for each in group] == candidates
        return [[sizes[each.base_offset] for each in group] for group in found]

    assert grouped([], 100) == []
    assert grouped([40, 60, 1, 100, 101, 5], 100) == [[40, 60], [1], [100], [101], [5]]
    assert grouped([1, 2, 3], 0) == [[1], [2], [3]]  # a store without groups
    assert [len(each) for each in grouped([1] * 20, 100)] == [8, 8, 4]


def test_requests_hold_one_object_or_what_fits() -> None:
    def sized(size: int, path: str | None = None) -> SizedObject:
        return SizedObject(NewObject("k", b"" if path else bytes(size), path), size)

    log, large, small = sized(1 << 30, "/log"), sized(CONTENTS_BYTES_MAX), sized(1)
    objects = [log, small, small, large, small]
    together = split_requests(objects, is_grouped=True)
    assert list(together) == [[log, small, small], [large], [small]]
    assert list(split_requests(objects, is_grouped=False)) == [[each] for each in objects]
    assert list(split_requests([], is_grouped=True)) == []


def test_highest_remote_offset_ignores_what_another_history_copied() -> None:
    known = {0: 19, 1: 45}
    log = LeaderEpochs(epochs((0, 0), (1, 20), (3, 30)))

    def highest(epoch: LeaderEpoch) -> Offset | None:
        found = known.get(epoch)
        return None if found is None else Offset(found)

    assert highest_remote_offset(log, Offset(60), highest) == 29  # epoch 1 ended at 30 here
    known[3] = 50
    assert highest_remote_offset(log, Offset(60), highest) == 50
    known.clear()
    assert highest_remote_offset(log, Offset(60), highest) == -1


def test_segment_epochs_begin_with_the_segment() -> None:
    log = LeaderEpochs(epochs((0, 0), (2, 20), (5, 50)))
    assert segment_epochs(log, Offset(10), Offset(30)) == epochs((0, 10), (2, 20))
    assert segment_epochs(log, Offset(20), Offset(50)) == epochs((2, 20))
    assert segment_epochs(log, Offset(60), Offset(70)) == epochs((5, 60))


def test_first_remote_offset_skips_copies_in_progress() -> None:
    log = LeaderEpochs(epochs((0, 0), (1, 20)))
    started, done = segment(1, 0, 9), segment(2, 10, 19, state=FINISHED)
    by_epoch = {0: [started, done]}
    assert first_remote_offset(log, lambda epoch: by_epoch.get(epoch, [])) == 10
    by_epoch[0] = [started]
    assert first_remote_offset(log, lambda epoch: by_epoch.get(epoch, [])) is None


def test_unfinished_are_copies_that_nobody_makes_and_interrupted_deletions() -> None:
    mine, other, done = segment(1, 0, 9), segment(2, 0, 9), segment(3, 0, 9, state=FINISHED)
    interrupted = segment(4, 0, 9, state=DELETING)
    found = unfinished([mine, other, done, interrupted], {mine.segment_id})
    assert found == [other, interrupted]


# -- retention ---------------------------------------------------------------------


def plan(
    cache: MetadataCache,
    log_epochs: Sequence[tuple[int, int]] = ((0, 0),),
    *,
    log_start: int = 0,
    log_end: int = 100,
    local: int = 0,
    ms: int = -1,
    size: int = -1,
    copying: Sequence[SegmentId] = (),
    now: int = 10_000,
) -> tuple[list[int], int | None]:
    state = RemoteLogState(epochs(*log_epochs), Offset(log_start), Offset(log_end), local, ms, size)
    found = plan_remote_retention(state, cache.all(), cache.of_epoch, set(copying), Millis(now))
    numbers = [int.from_bytes(each.segment_id.id, "big") for each in found.segments]
    return sorted(numbers), found.log_start


def test_remote_retention_by_time_deletes_the_oldest_and_moves_the_log_start() -> None:
    cache = cache_of(
        segment(1, 0, 9, timestamp=1000),
        segment(2, 10, 19, timestamp=2000),
        segment(3, 20, 29, timestamp=9000),
    )
    assert plan(cache) == ([], None)
    assert plan(cache, ms=8000) == ([1, 2], 20)
    assert plan(cache, ms=8001) == ([1], 10)
    assert plan(cache, ms=0) == ([1, 2, 3], 30)


def test_remote_retention_by_time_stops_at_a_young_segment() -> None:
    cache = cache_of(segment(1, 0, 9, timestamp=9000), segment(2, 10, 19, timestamp=1000))
    assert plan(cache, ms=5000) == ([], None)


def test_remote_retention_by_size_counts_the_local_log() -> None:
    cache = cache_of(segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29))
    assert plan(cache, size=300) == ([], None)
    assert plan(cache, size=200) == ([1], 10)
    assert plan(cache, size=250) == ([], None)  # less would be left than is to be kept
    assert plan(cache, size=250, local=150) == ([1, 2], 20)


def test_remote_retention_deletes_segments_below_the_log_start() -> None:
    cache = cache_of(segment(1, 0, 9), segment(2, 10, 19))
    assert plan(cache, ((0, 15),), log_start=15) == ([1], None)
    assert plan(cache, ((0, 9),), log_start=9) == ([], None)


def test_remote_retention_deletes_epochs_that_the_log_no_longer_has() -> None:
    cache = cache_of(segment(1, 0, 9, [(0, 0)]), segment(2, 10, 19, [(3, 10)]))
    assert plan(cache, ((3, 10),), log_start=10) == ([1], None)


def test_remote_retention_leaves_another_lineage_alone_until_its_epochs_are_gone() -> None:
    """An unclean election: epoch 1 wrote 10..29, the log has only 10..14 of it."""
    stale = segment(1, 10, 29, [(1, 10)], timestamp=1)
    good = segment(2, 15, 24, [(2, 15)], timestamp=9999)
    cache = cache_of(segment(3, 0, 9, [(0, 0)], timestamp=9999), stale, good)
    log_epochs = ((0, 0), (1, 10), (2, 15))
    assert plan(cache, log_epochs, ms=5000) == ([], None)  # must not move the log start to 30
    assert plan(cache, ((2, 16),), log_start=16, ms=-1) == ([1, 3], None)
    cache = cache_of(segment(3, 0, 9, [(0, 0)], timestamp=1), stale, good)
    assert plan(cache, log_epochs, ms=5000) == ([3], 10)


def test_remote_retention_finishes_interrupted_deletions_and_spares_copies() -> None:
    interrupted, copying = segment(1, 0, 9), segment(2, 10, 19)
    cache = cache_of(interrupted)
    cache.update(update(interrupted, DELETING))
    cache.add(copying)
    assert plan(cache, ms=0, copying=[copying.segment_id]) == ([1], None)


# -- formats -----------------------------------------------------------------------


def test_events_survive_their_bytes() -> None:
    metadata = segment(1, 5, 9, [(0, 5), (1, 7)])
    events = (
        metadata,
        SegmentUpdate(metadata.segment_id, "t", Millis(7), FINISHED, NodeId(4), b"custom"),
        PartitionDeletion(
            AT, "t", PartitionDeleteState.DELETE_PARTITION_MARKED, Millis(1), NodeId(2)
        ),
    )
    for event in events:
        assert decode_event(encode_event(event)) == event


def test_snapshot_is_ignored_if_damaged_or_of_another_topic() -> None:
    segments = (segment(1, 0, 9, state=FINISHED), segment(2, 10, 19))
    data = encode_snapshot(TOPIC_ID, Offset(42), segments)
    assert decode_snapshot(data, TOPIC_ID) == (42, segments)
    assert decode_snapshot(data, Uuid(bytes(16))) is None
    for at in range(0, len(data), 7):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert decode_snapshot(damaged, TOPIC_ID) is None
        assert decode_snapshot(data[:at], TOPIC_ID) is None


def test_custom_metadata_lists_every_object() -> None:
    stored = {kind: StoredObject(2**40 + kind.number, 7 * kind.number) for kind in ObjectKind}
    custom = encode_objects(stored)
    assert len(custom) <= 128  # Kafka's default limit
    assert decode_objects(custom) == stored
    for bad in (None, b"", b"\x02" + custom[1:], custom[:-1], custom[:1] + b"\x63" + custom[2:]):
        with pytest.raises(CorruptCustomMetadata):
            decode_objects(bad)


def test_object_keys_have_ids_and_offsets_only() -> None:
    metadata = segment(1, 7, 9)
    key = object_key("backup", metadata, ObjectKind.LOG)
    assert key == (
        "backup/AAECAwQFBgcICQoLDA0ODw/3/00000000000000000007-AAAAAAAAAAAAAAAAAAAAAQ.log"
    )


def test_object_key_is_parsed_or_is_of_something_else() -> None:
    key = object_key("a/b", segment(1, 7, 9), ObjectKind.MANIFEST)
    assert parse_key(key) == (7, "AAAAAAAAAAAAAAAAAAAAAQ", ObjectKind.MANIFEST)
    for other in ("", "a/b", "a/7.log", "a/x-y.log", "a/00000000000000000007-AAA.tmp"):
        assert parse_key(other) is None


def test_manifest_that_was_changed_is_rejected() -> None:
    custom = encode_objects({ObjectKind.LOG: StoredObject(10, 20)})
    metadata = segment(1, 7, 9, [(3, 7), (4, 9)])
    data = encode_manifest(metadata, custom)
    assert decode_manifest(data) == msgspec.structs.replace(metadata, custom=custom)
    for at in range(len(data)):
        with pytest.raises(CorruptManifest):
            decode_manifest(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptManifest):
            decode_manifest(data[:at])


@pytest.mark.parametrize(
    ("topic_id", "partition", "of_50", "of_3"),
    [(bytes(range(16)), 0, 45, 2), (bytes(range(16)), 3, 36, 2), (b"\xff" * 16, 7, 31, 1)],
)
def test_metadata_partition_is_kafkas(
    topic_id: bytes, partition: int, of_50: int, of_3: int
) -> None:
    """The numbers are from Apache Kafka's RemoteLogMetadataTopicPartitioner."""
    at = TopicIdPartition(Uuid(topic_id), partition)
    assert (metadata_partition(at, 50), metadata_partition(at, 3)) == (of_50, of_3)


GOLDEN_ID = "010{}00076f7264657273000102030405060708090a0b0c0d0e0f0000000300"
GOLDEN_SEGMENT = "101112131415161718191a1b1c1d1e1f00"
GOLDEN_METADATA = (
    "000000000000006400000000000000c7000000010000018bcfe5687b0000018bcfe56be8"
    "0300000000000000000000006400000000020000000000000096000000100000000"
)


def golden_segment() -> SegmentMetadata:
    at = TopicIdPartition(TOPIC_ID, 3)
    return SegmentMetadata(
        SegmentId(at, Uuid(bytes(range(16, 32)))),
        "orders",
        Offset(100),
        Offset(199),
        Millis(1_700_000_000_123),
        NodeId(1),
        Millis(1_700_000_001_000),
        4096,
        epochs((0, 100), (2, 150)),
    )


def test_records_of_the_metadata_topic_are_kafkas() -> None:
    """The bytes are from Apache Kafka's RemoteLogMetadataSerde."""
    metadata = golden_segment()
    changed = SegmentUpdate(
        metadata.segment_id, "orders", Millis(1_700_000_002_000), FINISHED, NodeId(2), b"\1\2\3"
    )
    deletion = PartitionDeletion(
        metadata.partition,
        "orders",
        PartitionDeleteState.DELETE_PARTITION_STARTED,
        Millis(1_700_000_003_000),
        NodeId(3),
    )
    start = GOLDEN_ID.format(0) + GOLDEN_SEGMENT + GOLDEN_METADATA
    without_txns = msgspec.structs.replace(metadata, is_txn_index_empty=True)
    assert encode_event(metadata).hex() == start + "0"
    assert encode_event(without_txns).hex() == start + "1000101"
    assert encode_event(changed).hex() == (
        GOLDEN_ID.format(1) + GOLDEN_SEGMENT + "000000020000018bcfe56fd0040102030100"
    )
    assert encode_event(deletion).hex() == (GOLDEN_ID.format(2) + "000000030000018bcfe573b80100")
    for event in (metadata, without_txns, changed, deletion):
        assert decode_event(encode_event(event)) == event


# -- the client of the metadata topic ------------------------------------------------


def test_bootstrap_backoff_doubles_from_250_ms_to_10_s() -> None:
    assert [backoff_s(n) for n in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]


def test_metadata_client_address() -> None:
    explicit, advertised = Address("elsewhere", 1), Address("kafka.example.org", 2)

    def choose(host: str, given: Address | None = None, *, is_secured: bool = False) -> Address:
        return client_address(given, advertised, Address(host, 9092), is_secured=is_secured)

    assert choose("0.0.0.0", explicit, is_secured=True) == explicit
    assert choose("0.0.0.0", is_secured=True) == advertised
    assert choose("0.0.0.0") == Address("127.0.0.1", 9092)
    assert choose("::") == Address("::1", 9092)
    assert choose("10.0.0.7") == Address("10.0.0.7", 9092)
