"""The pure rules of compaction: which log, which part, which batch; and the offset map."""

import hashlib
from array import array
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.walker import Spans, walk_spans
from ottla.protocol.records.writer import encode_records
from ottla.protocol.types import Millis, Offset
from ottla.storage.cleaner.compaction import (
    Candidate,
    Dirty,
    Lags,
    Limits,
    LogOffsets,
    choose_filthiest,
    find_dirty,
    plan_groups,
)
from ottla.storage.cleaner.offset_map import IS_COMPILED, Marked, OffsetMap, hash_key
from ottla.storage.cleaner.record_filter import (
    max_timestamp_delta,
    retain_records,
    retain_records_rebased,
)

pytestmark = pytest.mark.engine

SECRET = bytes(range(16))
NO_LAGS = Lags(0, 2**63 - 1)


class Seg(NamedTuple):
    base_offset: Offset
    size: int = 100
    index_size: int = 8
    largest_timestamp: Millis = Millis(0)
    first_timestamp: Millis | None = Millis(0)


def segs(*bases: int, **more: object) -> list[Seg]:
    return [Seg(Offset(base), **more) for base in bases]  # type: ignore[arg-type]


def offsets(
    checkpoint: int | None = None, start: int = 0, stable: int = 100, end: int = 100
) -> LogOffsets:
    at = None if checkpoint is None else Offset(checkpoint)
    return LogOffsets(at, Offset(start), Offset(stable), Offset(end))


def dirty(segments: list[Seg], where: LogOffsets, lags: Lags = NO_LAGS, now: int = 1000) -> Dirty:
    return find_dirty(segments, where, lags, Millis(now))


# -- the cleanable part -------------------------------------------------------------------


def test_without_a_checkpoint_everything_but_the_active_segment_is_dirty() -> None:
    found = dirty(segs(0, 10, 20), offsets())
    assert (found.first_dirty, found.first_uncleanable) == (0, 20)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 200, 1.0)


def test_part_cleaned_before_counts_as_clean() -> None:
    found = dirty(segs(0, 10, 20, 30), offsets(checkpoint=20))
    assert (found.first_dirty, found.clean_bytes, found.cleanable_bytes) == (20, 200, 100)


def test_segment_with_the_last_stable_offset_is_not_cleaned() -> None:
    assert dirty(segs(0, 10, 20), offsets(stable=15)).first_uncleanable == 10
    assert dirty(segs(0, 10, 20), offsets(stable=10)).first_uncleanable == 10
    assert dirty(segs(0, 10, 20), offsets(stable=0)).first_uncleanable == 0


@pytest.mark.parametrize(("checkpoint", "start"), [(5, 10), (101, 0), (101, 10)])
def test_checkpoint_outside_the_log_is_replaced_by_its_start(checkpoint: int, start: int) -> None:
    found = dirty(segs(0, 10, 20), offsets(checkpoint=checkpoint, start=start))
    assert (found.first_dirty, found.is_checkpoint_wrong) == (start, True)


def test_checkpoint_inside_the_log_is_used() -> None:
    assert not dirty(segs(0, 10), offsets(checkpoint=100)).is_checkpoint_wrong


def test_minimum_lag_uses_the_newest_record_of_a_segment() -> None:
    segments = segs(0, 10) + segs(20, largest_timestamp=Millis(950)) + segs(30, 40)
    assert dirty(segments, offsets(), Lags(100, 2**63 - 1)).first_uncleanable == 20
    assert dirty(segments, offsets(), Lags(50, 2**63 - 1)).first_uncleanable == 40


def test_log_is_overdue_by_its_oldest_dirty_segment() -> None:
    segments = segs(0, first_timestamp=Millis(100)) + segs(10, first_timestamp=Millis(700))
    segments += segs(20)
    assert dirty(segments, offsets(), Lags(0, 500)).overdue_ms == 400
    assert dirty(segments, offsets(checkpoint=10), Lags(0, 500)).overdue_ms == 0
    assert dirty(segments, offsets(), NO_LAGS).overdue_ms == 0


def test_empty_log_is_not_worth_cleaning() -> None:
    found = dirty(segs(0, size=0), offsets(end=0, stable=0))
    assert (found.ratio, found.is_worth_cleaning(0.0)) == (0.0, False)


# -- which log -----------------------------------------------------------------


def candidate(name: str, dirty_bytes: int, overdue: int = 0) -> Candidate:
    part = Dirty(Offset(0), Offset(9), 100 - dirty_bytes, dirty_bytes, overdue, False)
    return Candidate(name, part, 0.5)


def chosen(*candidates: Candidate) -> str | None:
    best = choose_filthiest(candidates)
    return None if best is None else best.name


def test_dirtiest_log_is_cleaned_first() -> None:
    assert chosen(candidate("a", 60), candidate("b", 80), candidate("c", 70)) == "b"


def test_log_must_be_dirtier_than_its_ratio() -> None:
    assert chosen(candidate("a", 50)) is None
    assert chosen(candidate("a", 51)) == "a"


def test_log_past_its_maximum_lag_comes_before_dirtier_ones() -> None:
    assert chosen(candidate("a", 90), candidate("b", 1, overdue=5)) == "b"
    assert chosen(candidate("b", 0, overdue=5)) is None


def test_ties_are_broken_by_name() -> None:
    assert chosen(candidate("b", 80), candidate("a", 80)) == "a"


# -- groups --------------------------------------------------------------------


def groups(segments: list[Seg], size: int = 1000, index: int = 1000, end: int = 100) -> list:
    return [
        [segment.base_offset for segment in group]
        for group in plan_groups(segments, Limits(size, index), Offset(end))
    ]


def test_groups_hold_what_fits_into_one_segment() -> None:
    assert groups(segs(0, 10, 20, 30, 40), size=250) == [[0, 10], [20, 30], [40]]
    assert groups(segs(0, 10, 20), size=99) == [[0], [10], [20]]


def test_groups_are_bounded_by_their_indexes() -> None:
    assert groups(segs(0, 10, 20), index=16) == [[0, 10], [20]]


def test_groups_are_bounded_by_the_offsets_an_index_can_hold() -> None:
    far = 2**31
    assert groups(segs(0, 10, far - 1), end=far) == [[0, 10, far - 1]]
    assert groups(segs(0, 10, far - 1), end=far + 1) == [[0, 10], [far - 1]]
    assert groups([*segs(0, 10), *segs(far, size=0)], end=far + 9) == [[0, 10, far]]


# -- the map -------------------------------------------------------------------


def packed(*keys: bytes | None, values: list[bytes | None] | None = None) -> tuple[bytes, Spans]:
    given_values = values or [b"v"] * len(keys)
    records = [
        Record(Offset(at), Millis(at * 7), key, value, (Header("h", b"x"),))
        for at, (key, value) in enumerate(zip(keys, given_values, strict=True))
    ]
    region = bytes(encode_records(records, 0, 0))
    return region, walk_spans(region, len(records))


def test_hash_is_keyed_and_matches_the_reference() -> None:
    vectors = {b"": "a3817f04ba25a8e66df67214c7550293", b"\0": "da87c1d86b99af44347659119b22fc45"}
    for key, siphash in vectors.items():
        blake = hashlib.blake2b(key, digest_size=16, key=SECRET).hexdigest()
        assert hash_key(SECRET, key).hex() == (siphash if IS_COMPILED else blake)
    assert hash_key(SECRET, b"a") != hash_key(bytes(16), b"a")


def test_every_length_of_key_is_hashed_whole() -> None:
    hashes = {hash_key(SECRET, bytes([1] * length)) for length in range(100)}
    assert len(hashes) == 100
    for position in range(40):
        changed = bytearray(40)
        changed[position] = 1
        assert hash_key(SECRET, bytes(changed)) != hash_key(SECRET, bytes(40))


def test_newest_offset_of_a_key_wins() -> None:
    offset_map = OffsetMap(24 * 100, SECRET)
    assert offset_map.put(*packed(b"a", b"b", b"a"), Offset(10), Offset(0))
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.get(b"c")) == (12, 11, None)
    assert offset_map.size == 2
    offset_map.close()


def test_records_below_the_start_are_not_added_to_the_map() -> None:
    offset_map = OffsetMap(24 * 100, SECRET)
    offset_map.put(*packed(b"a", b"b"), Offset(10), Offset(11))
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (None, 11)
    offset_map.close()


def test_full_map_returns_false_and_keeps_its_entries() -> None:
    offset_map = OffsetMap(24 * 4, SECRET, load_factor=0.5)
    assert not offset_map.put(*packed(b"a", b"b", b"c"), Offset(0), Offset(0))
    assert (offset_map.size, offset_map.utilization) == (2, 0.5)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [0, 1, None]
    offset_map.close()


def test_load_factor_of_one_still_leaves_a_free_slot_to_stop_at() -> None:
    offset_map = OffsetMap(24 * 4, SECRET, load_factor=1.0)
    offset_map.put(*packed(b"a", b"b", b"c", b"d"), Offset(0), Offset(0))
    assert offset_map.get(b"unknown") is None
    offset_map.close()


def test_table_grows_to_its_memory_limit_and_loses_nothing() -> None:
    offset_map = OffsetMap(24 * 50_000, SECRET)
    assert offset_map.capacity == 45_000
    keys = [b"key-%d" % number for number in range(46_000)]
    for first in range(0, 45_000, 1000):
        assert offset_map.put(*packed(*keys[first : first + 1000]), Offset(first), Offset(0))
    assert not offset_map.put(*packed(*keys[45_000:]), Offset(45_000), Offset(0))
    assert [offset_map.get(key) for key in keys[:45_000:7]] == list(range(0, 45_000, 7))
    assert (offset_map.size, offset_map.utilization) == (45_000, 0.9)
    offset_map.close()


@pytest.mark.parametrize("memory", [0, 23, 24])
def test_no_memory_is_an_error(memory: int) -> None:
    with pytest.raises(ValueError, match="cannot hold a key"):
        OffsetMap(memory, SECRET)


@given(st.lists(st.binary(max_size=3), max_size=60), st.integers(20, 70))
def test_map_agrees_with_a_dictionary(keys: list[bytes], slots: int) -> None:
    offset_map = OffsetMap(24 * slots, SECRET)
    expected: dict[bytes, int] = {}
    is_full = False
    for at, key in enumerate(keys):
        if len(expected) >= offset_map.capacity:
            is_full = True
            break
        expected[key] = at + 5
    assert offset_map.put(*packed(*keys), Offset(5), Offset(0)) is not is_full
    assert {key: offset_map.get(key) for key in expected} == expected
    assert offset_map.size == len(expected)
    offset_map.close()


def test_marks_follow_the_rules_of_a_record() -> None:
    offset_map = OffsetMap(24 * 100, SECRET)
    keys = [b"a", None, b"b", b"a", b"b", b"c"]
    region, spans = packed(*keys, values=[b"1", b"1", b"1", b"2", None, b"1"])
    offset_map.put(region, spans, Offset(0), Offset(0))
    offset_map.latest_offset = Offset(4)
    keep = bytearray(6)
    marked = offset_map.mark(region, spans, Offset(0), keep, is_past_horizon=False)
    assert (list(keep), marked) == ([0, 0, 0, 1, 1, 1], Marked(3, 1, 1))
    marked = offset_map.mark(region, spans, Offset(0), keep, is_past_horizon=True)
    assert (list(keep), marked) == ([0, 0, 0, 1, 0, 1], Marked(2, 0, 1))
    offset_map.close()


def test_records_above_the_latest_offset_are_kept() -> None:
    offset_map = OffsetMap(24 * 100, SECRET)
    region, spans = packed(None, b"a", b"a", values=[b"1", b"1", None])
    offset_map.put(region, spans, Offset(0), Offset(0))
    keep = bytearray(3)
    marked = offset_map.mark(region, spans, Offset(0), keep, is_past_horizon=True)
    assert (list(keep), marked.kept) == ([1, 1, 1], 3)
    offset_map.close()


# -- copying records -------------------------------------------------------------

masks = st.lists(st.booleans(), min_size=1, max_size=12)
deltas = st.integers(-(2**41), 2**41)


@given(masks, st.data())
def test_kept_records_are_the_same_bytes_at_the_same_offsets(
    mask: list[bool], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.binary(max_size=9), min_size=len(mask), max_size=len(mask)))
    region, spans = packed(*keys)
    kept = retain_records(region, spans, bytes(mask))
    again = walk_spans(kept, sum(mask))
    assert list(again.offset_deltas) == [at for at, keep in enumerate(mask) if keep]
    parts = [
        region[spans.starts[at] : spans.starts[at + 1]] for at, keep in enumerate(mask) if keep
    ]
    assert bytes(kept) == b"".join(parts)


@given(masks, deltas, st.lists(deltas, min_size=12, max_size=12))
def test_rebased_records_differ_in_their_timestamp_delta_alone(
    mask: list[bool], shift: int, times: list[int]
) -> None:
    records = [
        Record(Offset(at), Millis(times[at]), b"k" * at, None if at % 2 else b"v" * 70, ())
        for at in range(len(mask))
    ]
    region = bytes(encode_records(records, 0, 0))
    spans = walk_spans(region, len(mask))
    kept = retain_records_rebased(region, spans, bytes(mask), shift)
    wanted = [r._replace(timestamp=Millis(r.timestamp + shift)) for r in records]
    chosen_records = [r for r, keep in zip(wanted, mask, strict=True) if keep]
    assert bytes(kept) == bytes(encode_records(chosen_records, 0, 0))


@given(st.lists(st.tuples(st.booleans(), deltas), min_size=1, max_size=9))
def test_largest_timestamp_counts_kept_records_only(rows: list[tuple[bool, int]]) -> None:
    rows = [*rows, (True, -(2**41))]
    spans = Spans(len(rows))
    spans.timestamp_deltas = array("q", [delta for _, delta in rows])
    expected = max(delta for keep, delta in rows if keep)
    assert max_timestamp_delta(spans, bytes(keep for keep, _ in rows)) == expected
