"""Planning of reads without a cluster: positions, losses, limits and pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.offset_spec import Range
from ottla.protocol.types import TopicPartition
from ottla.spark.option_values import OptionError
from ottla.spark.options import Assign, Limits, Pattern, Splitting, Subscribe
from ottla.spark.plan import (
    Cause,
    Loss,
    Topic,
    View,
    advance,
    check,
    choose,
    cut,
    density_of,
    divide,
    explain,
    is_due,
    limit,
    missing,
    offset_queries,
    ranges,
    resolve,
    share_bytes,
    share_rows,
    trim,
)
from ottla.spark.stream_offsets import (
    Ago,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    BadStreamOffset,
    Boundary,
    Edge,
    StreamOffset,
    from_json,
    stream_offset,
    to_json,
)

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
B0 = TopicPartition("b", 0)
FOUND = {"a": Topic("ida", 2), "b": Topic("idb", 1), "__own": Topic("idi", 1, internal=True)}


def view(earliest: dict, latest: dict, ids: dict | None = None) -> View:
    return View(ids or {"a": "ida", "b": "idb"}, earliest, latest)


# -- offsets -----------------------------------------------------------------

POSITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "version"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
)


@given(POSITIONS)
def test_stream_offset_round_trips_through_json(found: dict) -> None:
    starts = {each: start for each, (start, _) in found.items()}
    ends = {each: end for each, (_, end) in found.items()}
    ids = {each.topic: "id-" + each.topic for each in found}
    offset = stream_offset(starts, ends, ids)
    back = from_json(to_json(offset, "g"))
    assert back == offset
    assert (back.starts, back.ends, back.pieces) == (starts, ends, None)
    pieces = {each: 1 + start % 3 for each, start in starts.items()}
    back = from_json(to_json(stream_offset(starts, ends, ids, pieces)))
    assert (back.starts, back.ends, back.pieces) == (starts, ends, pieces)


def test_offset_without_pieces_is_read() -> None:
    offset = from_json({"version": 1, "topics": {"a": {"id": "x", "end": {"0": 1}}}})
    assert offset.pieces is None


def test_offset_of_sparks_kafka_source_is_read() -> None:
    offset = from_json({"a": {"0": 5, "1": 7}, "version": {"0": 1}})
    assert offset.ends == {A0: 5, A1: 7, TopicPartition("version", 0): 1}
    assert offset.starts is None and offset.ids == {"a": "", "version": ""}


@pytest.mark.parametrize(
    "kept",
    [
        [],
        "latest",
        {"version": 2, "topics": {}},
        {"version": 1},
        {"a": {"0": -1}},
        {"a": {"-1": 0}},
        {"a": {"0": "5"}},
        {"version": 1, "topics": {"a": {"id": "x", "end": {"0": 1}, "start": {"1": 1}}}},
        {"version": 1, "topics": {"a": {"end": {"0": 1}}}},
        {"version": 1, "topics": {"a": {"id": "x", "end": {"0": 1}, "pieces": {"0": 0}}}},
    ],
)
def test_invalid_offset_is_rejected(kept: object) -> None:
    with pytest.raises(BadStreamOffset):
        from_json(kept)


# -- partitions and boundaries -------------------------------------------------


def test_choose_returns_selected_partitions_that_exist() -> None:
    assert choose(Subscribe(("b", "a", "x")), FOUND) == [A0, A1, B0]
    assert missing(Subscribe(("b", "x")), FOUND) == ["x"]
    assert choose(Pattern(".*"), FOUND) == [A0, A1, B0]
    assert missing(Pattern("x"), FOUND) == []
    assert choose(Assign((A1, A2)), FOUND) == [A1]
    assert missing(Assign((A1, A2, TopicPartition("x", 0))), FOUND) == ["a-2", "x-0"]


def resolved(boundary: Boundary, answers: dict, latest: dict) -> dict:
    asked = offset_queries(boundary, "startingOffsets", [A0, A1], now_ms=1000)
    assert asked.keys() == answers.keys()
    return resolve(boundary, "startingOffsets", asked, answers, latest)


def test_boundary_resolves_to_an_offset_per_partition() -> None:
    latest = {A0: 9, A1: 8}
    assert offset_queries(Edge.LATEST, "o", [A0], 0) == {A0: -1}
    assert offset_queries(Edge.EARLIEST, "o", [A0], 0) == {A0: -2}
    assert offset_queries(AtTimestamp(7, True), "o", [A0, A1], 0) == {A0: 7, A1: 7}
    assert offset_queries(AtTimestamps({A0: 7}, True), "o", [A0], 0) == {A0: 7}
    assert offset_queries(Ago(400), "o", [A0], 1000) == {A0: 600}
    assert offset_queries(Ago(4000), "o", [A0], 1000) == {A0: 0}
    assert offset_queries(AtOffsets({A0: 5, A1: -2}), "o", [A0, A1], 0) == {A1: -2}
    assert resolved(Edge.EARLIEST, {A0: 2, A1: 0}, {}) == {A0: 2, A1: 0}
    assert resolved(AtOffsets({A0: 5, A1: -2}), {A1: 3}, {}) == {A0: 5, A1: 3}
    assert resolved(Ago(1), {A0: 4, A1: -1}, latest) == {A0: 4, A1: 8}
    assert resolved(AtTimestamp(7, True), {A0: -1, A1: 3}, latest) == {A0: 9, A1: 3}
    with pytest.raises(OptionError, match="'startingOffsets': a-1 has no record of 7 ms or later"):
        resolved(AtTimestamp(7, False), {A0: 4, A1: -1}, latest)
    with pytest.raises(OptionError, match="it lacks a-0; b-0 is not read"):
        offset_queries(AtOffsets({A1: 0, B0: 0}), "startingOffsets", [A0, A1], 0)
    with pytest.raises(OptionError, match="'x' must name every partition that is read"):
        offset_queries(AtTimestamps({A1: 0}, True), "x", [A0, A1], 0)


def test_ranges_lie_between_two_positions() -> None:
    ids = {"a": "ida"}
    assert ranges({A0: 1, A1: 4}, {A1: 4, A0: 3}, ids) == [Range(A0, 1, 3, "ida")]
    with pytest.raises(OptionError, match="a-0: the end offset 3 is before the start offset 5"):
        ranges({A0: 5}, {A0: 3}, ids)


# -- losses ---------------------------------------------------------------------

BEFORE = stream_offset({A0: 0, A1: 0}, {A0: 5, A1: 7}, {"a": "ida"})


def test_advance_continues_and_adds_new_partitions() -> None:
    now = view({A0: 0, A1: 0, A2: 0, B0: 3}, {A0: 9, A1: 7, A2: 4, B0: 8})
    assert advance(BEFORE, now) == ({A0: 5, A1: 7, A2: 0, B0: 3}, [])


def causes(losses: list[Loss]) -> list[tuple]:
    return [(each.partition, each.cause, each.first, each.last) for each in losses]


def test_each_loss_names_partition_range_and_cause() -> None:
    ids = {"a": "ida"}
    expired = advance(BEFORE, view({A0: 6, A1: 7}, {A0: 9, A1: 7}, ids))
    assert expired[0] == {A0: 6, A1: 7}
    assert causes(expired[1]) == [(A0, Cause.EXPIRED, 5, 6)]
    assert str(expired[1][0]).startswith("a-0: offsets 5 to 5: the log starts at 6")
    truncated = advance(BEFORE, view({A0: 0, A1: 0}, {A0: 5, A1: 4}, ids))
    assert truncated[0] == {A0: 5, A1: 4}
    assert causes(truncated[1]) == [(A1, Cause.TRUNCATED, 4, 7)]
    deleted = advance(BEFORE, view({A0: 0}, {A0: 6}, ids))
    assert deleted[0] == {A0: 5}
    assert causes(deleted[1]) == [(A1, Cause.DELETED, 7, None)]
    late = advance(BEFORE, view({A0: 0, A1: 0, A2: 2}, {A0: 5, A1: 7, A2: 4}, ids))
    assert late[0] == {A0: 5, A1: 7, A2: 2}
    assert causes(late[1]) == [(A2, Cause.EXPIRED, 0, 2)]
    assert "b-0" not in explain(late[1]) and "a-2: offsets 0 to 1" in explain(late[1])


def test_recreated_topic_is_read_from_its_start() -> None:
    now = view({A0: 0, A1: 2}, {A0: 50, A1: 60}, {"a": "new"})
    starts, losses = advance(BEFORE, now)
    assert starts == {A0: 0, A1: 2}
    assert causes(losses) == [(A0, Cause.RECREATED, 5, None), (A1, Cause.RECREATED, 7, None)]
    assert "everything from offset 5 on: topic ida was deleted" in str(losses[0])
    unknown = StreamOffset(from_json({"a": {"0": 5, "1": 7}}).topics)
    assert advance(unknown, now) == ({A0: 5, A1: 7}, [])


def test_long_list_of_losses_is_truncated() -> None:
    many = [Loss(TopicPartition("a", each), Cause.DELETED, 0, 5, "gone") for each in range(20)]
    assert explain(many).endswith("; and 12 more") and explain(many).count("gone") == 8


def test_replayed_batch_is_checked_against_the_current_log() -> None:
    planned = [Range(A0, 0, 10, "ida"), Range(A1, 0, 10, "ida"), Range(B0, 3, 5, "idb")]
    all_there = view({A0: 0, A1: 0, B0: 0}, {A0: 10, A1: 99, B0: 5})
    assert check(planned, all_there) == (planned, [])
    kept, losses = check(planned, view({A0: 4, A1: 0, B0: 9}, {A0: 10, A1: 8, B0: 20}))
    assert kept == [Range(A0, 4, 10, "ida"), Range(A1, 0, 8, "ida")]
    assert causes(losses) == [
        (A0, Cause.EXPIRED, 0, 4),
        (A1, Cause.TRUNCATED, 8, 10),
        (B0, Cause.EXPIRED, 3, 5),
    ]
    kept, losses = check(planned, view({A0: 0, B0: 0}, {A0: 99, B0: 99}, {"a": "ida", "b": "new"}))
    assert kept == [planned[0]]
    assert causes(losses) == [(A1, Cause.DELETED, 0, 10), (B0, Cause.RECREATED, 3, 5)]


SMALL = st.integers(0, 12)


@given(SMALL, SMALL, SMALL, SMALL)
def test_kept_and_lost_ranges_make_up_the_batch(
    start: int, size: int, earliest: int, held: int
) -> None:
    planned = Range(A0, start, start + size + 1, "ida")
    kept, losses = check([planned], view({A0: earliest}, {A0: earliest + held}))
    offsets = [n for each in kept for n in range(each.start, each.end)]
    offsets += [n for each in losses for n in range(each.first, each.last or 0)]
    assert sorted(offsets) == list(range(planned.start, planned.end))
    assert all(earliest <= each.start and each.end <= earliest + held for each in kept)


# -- limits ----------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=5).map(
    lambda sizes: {TopicPartition("a", index): size for index, size in enumerate(sizes)}
)


@given(SIZES, st.integers(1, 60))
def test_share_rows_uses_all_rows_and_starves_no_partition(sizes: dict, rows_max: int) -> None:
    found = share_rows(sizes, rows_max)
    filled = [each for each, size in sizes.items() if size]
    assert found.keys() == sizes.keys()
    assert all(bool(sizes[each]) <= found[each] <= sizes[each] for each in sizes)
    expected = min(max(rows_max, len(filled)), sum(sizes.values()))
    assert sum(found.values()) == expected


def test_share_rows_is_proportional() -> None:
    assert share_rows({A0: 900, A1: 90, A2: 0}, 100) == {A0: 91, A1: 9, A2: 0}


def test_share_bytes_uses_bytes_per_offset() -> None:
    sizes, density = {A0: 100, A1: 100, A2: 0}, {A0: 10.0, A1: 30.0}
    assert share_bytes(sizes, 4000, density) == sizes
    assert share_bytes(sizes, 2000, density) == {A0: 50, A1: 50, A2: 0}
    assert share_bytes(sizes, 1, density) == {A0: 1, A1: 1, A2: 0}
    now = view({A0: 10, A1: 5, A2: 4}, {A0: 20, A1: 5, A2: 4})
    assert density_of(now, {A0: 500, A1: 70}, {}) == {A0: 50.0}


def test_density_counts_offsets_on_disk_alone() -> None:
    now = view({A0: 0, A1: 0, A2: 4}, {A0: 1000, A1: 500, A2: 4})
    local = {A0: 990, A1: 500, A2: 4}
    assert density_of(now, {A0: 500, A1: 0, A2: 0}, local) == {A0: 50.0, A1: 50.0}


def test_strictest_limit_ends_the_batch() -> None:
    starts, latest = {A0: 10, A1: 0}, {A0: 110, A1: 100}
    assert limit(starts, latest, Limits(), {}) == latest
    assert limit(starts, latest, Limits(rows_max=20), {}) == {A0: 20, A1: 10}
    by_bytes = Limits(rows_max=100, bytes_max=50)
    assert limit(starts, latest, by_bytes, {A0: 1.0, A1: 1.0}) == {A0: 35, A1: 25}


def test_batch_is_due_after_min_rows_or_max_delay() -> None:
    limits = Limits(rows_min=10, delay_ms_max=500)
    assert not is_due(9, limits, 499)
    assert is_due(10, limits, 0) and is_due(0, limits, 500) and is_due(0, Limits(), 0)


# -- pieces ------------------------------------------------------------------------

WHOLE = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), max_size=4).map(
    lambda found: [
        Range(TopicPartition("a", index), start, start + size, "ida")
        for index, (start, size) in enumerate(found)
    ]
)
MAYBE = st.none() | st.integers(1, 40)


@given(WHOLE, MAYBE, MAYBE, MAYBE)
def test_pieces_cover_the_ranges_exactly(
    whole: list[Range], least: int | None, rows: int | None, size: int | None
) -> None:
    density = {each.partition: 1.0 for each in whole}
    pieces = cut(whole, divide(whole, Splitting(least, rows, size), density))
    read = [(each.partition, n) for each in pieces for n in range(each.start, each.end)]
    assert read == [(each.partition, n) for each in whole for n in range(each.start, each.end)]
    assert all(0 < each.size <= min(rows or 99, size or 99) for each in pieces)
    assert {each.topic_id for each in pieces} <= {"ida"}
    assert len(pieces) >= min(least or 0, sum(each.size for each in whole))
    if rows is None and size is None:
        assert len(pieces) <= max(least or 0, len(whole))


def test_largest_range_is_cut_first() -> None:
    whole = [Range(A0, 0, 10), Range(A1, 0, 90)]
    sizes = [(each.partition, each.size) for each in cut(whole, divide(whole, Splitting(4), {}))]
    assert sizes == [(A0, 10), (A1, 30), (A1, 30), (A1, 30)]


def test_number_of_tasks_is_bounded() -> None:
    with pytest.raises(OptionError, match="1000000 Spark partitions"):
        divide([Range(A0, 0, 1_000_000)], Splitting(records_max=1), {})


@given(WHOLE, MAYBE, st.data())
def test_pieces_keep_their_numbers_and_rows_when_records_expire(
    whole: list[Range], least: int | None, data: st.DataObject
) -> None:
    pieces = cut(whole, divide(whole, Splitting(least), {}))
    logs = {each.partition: data.draw(st.integers(0, 40)) for each in whole}
    later = View(
        {"a": "ida"},
        {each: start for each, start in logs.items() if start < 38},  # the others are deleted
        {each: 50 for each, start in logs.items() if start < 38},
    )
    kept, _ = check(whole, later)
    left = trim(pieces, kept)
    assert len(left) == len(pieces)
    for before, after in zip(pieces, left, strict=True):
        start = logs[before.partition]
        is_there = [n for n in range(before.start, before.end) if start <= n and start < 38]
        assert is_there == ([] if after is None else list(range(after.start, after.end)))
        assert after is None or after.partition == before.partition
