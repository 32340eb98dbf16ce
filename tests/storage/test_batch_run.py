"""Runs of plain batches: what they contain, and that they change nothing of what is cleaned."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from unittest.mock import patch

import pytest
from compacted_log import CONFIG, SECRET, CompactedLog, Pair
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Compression,
    patch_crc,
    read_header,
)
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.walker import walk_spans
from ottla.protocol.records.writer import Producer, build_batch, seal_batch
from ottla.protocol.types import Millis, Offset
from ottla.storage.cleaner.batch_run import (
    ALONE,
    BATCH_RECORDS_MAX,
    COPIED,
    RECORDS_MAX,
    REMOVED,
    BatchRun,
    RunLimits,
)
from ottla.storage.cleaner.compactor import (
    STEP_BATCHES,
    STEP_BYTES,
    CleaningAborted,
    CleaningRound,
    Memory,
    dirty_part,
)
from ottla.storage.cleaner.offset_map import OffsetMap

pytestmark = pytest.mark.engine

Batch = bytearray
LIMITS = RunLimits(1 << 20, RECORDS_MAX, Offset(0), Offset(10**6))


def batch_at(base: int, *pairs: Pair, **more: object) -> Batch:
    records = [
        Record(Offset(base + at), Millis(500 + at), key, value)
        for at, (key, value) in enumerate(pairs)
    ]
    return build_batch(records, base_offset=base, **more)  # type: ignore[arg-type]


def plain(base: int) -> Batch:
    return batch_at(base, (b"key%d" % base, b"v" * 40))


def reads(*batches: Batch, limits: RunLimits = LIMITS, cut: int = 0) -> int:
    """Return how many of the batches a run has."""
    run, data = BatchRun(), b"".join(batches)
    run.read(data[: len(data) - cut], 0, limits)
    return run.batches


# -- what a run is -------------------------------------------------------------


def test_run_finds_the_fields_that_a_walk_of_each_batch_finds() -> None:
    batches = [
        batch_at(5, (b"a", b"1"), (None, b"2"), (b"", None)),
        batch_at(10, (b"long" * 60, b"x" * 20_000), producer=Producer(7, 0, 3)),
        batch_at(11, (b"c", b"")),
    ]
    data, run = b"".join(batches), BatchRun()
    assert run.read(data, 0, LIMITS)
    assert (run.batches, run.count, run.base_offset, run.end_offset) == (3, 5, 5, 12)
    assert run.size == len(data)
    at = 0
    for number, batch in enumerate(batches):
        header, region = read_header(batch), batch[61:]
        spans = walk_spans(region, header.records_count)
        records = range(run.record_starts[number], run.record_starts[number + 1])
        assert run.positions[number] == at
        for mine, other in zip(records, range(spans.count), strict=True):
            assert run.key_lengths[mine] == spans.key_lengths[other]
            assert run.value_lengths[mine] == spans.value_lengths[other]
            assert run.key_starts[mine] == at + 61 + spans.key_starts[other]
            offset = header.base_offset + spans.offset_deltas[other]
            assert run.base_offset + run.offset_deltas[mine] == offset
        at += len(batch)
        assert run.notes(number, number + 1) == [
            (header.last_offset, header.max_timestamp, len(batch))
        ]


def altered(base: int, change: Callable[[Batch], None]) -> Batch:
    batch = plain(base)
    change(batch)
    patch_crc(batch, 0, len(batch))
    return batch


def flagged(base: int, flag: int) -> Batch:
    def change(batch: Batch) -> None:
        batch[22] |= flag

    return altered(base, change)


def with_count(base: int, count: int) -> Batch:
    def change(batch: Batch) -> None:
        batch[57:61] = count.to_bytes(4, "big", signed=True)

    return altered(base, change)


def with_headers(base: int) -> Batch:
    record = Record(Offset(base), Millis(5), b"k", b"v", (Header("h", b"1"),))
    return build_batch([record], base_offset=base)


def of_format_1(base: int) -> Batch:
    batch = plain(base)
    batch[16] = 1
    return batch


def damaged(base: int) -> Batch:
    batch = plain(base)
    batch[-3] ^= 1
    return batch


def with_byte_after_the_records(base: int) -> Batch:
    batch = plain(base)
    return seal_batch(read_header(batch), batch[61:] + b"\0")


def marker_at(base: int) -> Batch:
    marker = build_end_txn_marker(EndTxnMarker(True, 0), Producer(1, 0), Millis(5))
    marker[:8] = base.to_bytes(8, "big")
    return marker


OTHERS = {
    "compressed": batch_at(1, (b"k", b"v" * 90), compression=Compression.LZ4),
    "transactional": batch_at(1, (b"k", b"v"), producer=Producer(1, 0, 0), is_transactional=True),
    "transactional by flag": flagged(1, TRANSACTIONAL),
    "control by flag": flagged(1, CONTROL),
    "marker": marker_at(1),
    "delete horizon": flagged(1, DELETE_HORIZON),
    "headers": with_headers(1),
    "format 1": of_format_1(1),
    "wrong CRC": damaged(1),
    "no records": with_count(1, 0),
    "negative count": with_count(1, -1),
    "too many records claimed": with_count(1, 2),
    "bytes after the records": with_byte_after_the_records(1),
    "offsets that do not ascend": plain(0),
    "offsets beyond the segment": plain(10**6),
    "many records": batch_at(1, *[(b"k", b"")] * (BATCH_RECORDS_MAX + 1)),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_run_ends_before_a_batch_that_is_not_plain(kind: str) -> None:
    assert reads(plain(0), plain(1), plain(2)) == 3
    assert reads(plain(0), OTHERS[kind], plain(2)) == 1
    if kind != "offsets that do not ascend":
        assert reads(OTHERS[kind]) == 0


def test_run_ends_before_an_incomplete_batch() -> None:
    for cut in range(1, len(plain(1))):
        assert reads(plain(0), plain(1), cut=cut) == 1


def test_run_ends_at_its_limits() -> None:
    batches = [plain(base) for base in range(5)]
    size = len(batches[0])
    assert reads(*batches, limits=LIMITS._replace(bytes_max=2 * size)) == 2
    assert reads(*batches, limits=LIMITS._replace(bytes_max=2 * size + 1)) == 3
    assert reads(*batches, limits=LIMITS._replace(records_max=3)) == 3
    assert reads(*batches, limits=LIMITS._replace(records_max=0)) == 0
    assert reads(*batches, limits=LIMITS._replace(expected=Offset(1))) == 0


@given(st.binary(max_size=40), st.integers(0, 120))
def test_malformed_records_end_a_run(junk: bytes, at: int) -> None:
    """A run has a batch only if the walk of every other reader accepts its records."""
    batch = bytearray(b"".join([plain(0)]))
    records = bytearray(batch[61:])
    records[at : at + len(junk)] = junk
    batch = seal_batch(read_header(batch), records)
    if reads(batch):
        assert walk_spans(batch[61:], 1).count == 1


# -- what happens to its batches ---------------------------------------------------


def test_batches_of_a_run_are_copied_removed_or_cleaned_alone() -> None:
    pairs: list[list[Pair]] = [
        [(b"a", b"1"), (b"b", b"1")],  # removed
        [(None, b"1"), (b"a", b"2")],  # removed, and a record without a key
        [(b"a", b"3")],  # loses one of two
        [(b"d", None)],  # a tombstone that stays
        [(b"b", b"2"), (b"e", b"1")],  # copied
        [(b"f", b"1")],  # copied, but at a protected end
        [(b"a", b"4"), (b"g", b"1")],
    ]
    pairs[2].append((b"h", b"1"))
    batches, base = [], 0
    for each in pairs:
        batches.append(batch_at(base, *each))
        base += len(each)
    data, run = b"".join(batches), BatchRun()
    assert run.read(data, 0, LIMITS)
    offset_map = OffsetMap(24 * 100, SECRET)
    assert offset_map.put(data, run, run.base_offset, Offset(0))
    offset_map.latest_offset = Offset(base - 1)
    keep = bytearray(RECORDS_MAX)
    offset_map.mark(data, run, run.base_offset, keep, is_past_horizon=False)
    parts = run.split(keep, {run.last_offsets[5]})
    assert [(part.outcome, part.first, part.stop) for part in parts] == [
        (REMOVED, 0, 2),
        (ALONE, 2, 4),
        (COPIED, 4, 5),
        (ALONE, 5, 6),
        (COPIED, 6, 7),
    ]
    assert [part.records for part in parts] == [4, 3, 2, 1, 2]
    assert [part.without_key for part in parts] == [1, 0, 0, 0, 0]
    assert all(a.stop == b.first for a, b in pairwise(parts))


# -- cleaning with and without runs ------------------------------------------------

KEYS = [b"a", b"b", b"c", b"d", None]
some_pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([b"1", b"2", None])), min_size=1, max_size=3
)
moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["plain", "plain", "idempotent", "lz4", "txn1"]), some_pairs),
        st.tuples(st.sampled_from(["commit1", "abort1", "roll", "clean", "wait"]), st.just([])),
    ),
    min_size=1,
    max_size=30,
)


class Filled:
    """A log that was filled and cleaned by some moves."""

    def __init__(self, map_slots: int) -> None:
        self.log = CompactedLog(replace(CONFIG, segment_bytes=900))
        self.log.memory = Memory(24 * map_slots, SECRET, load_factor=0.75)
        self.results: list[object] = []
        self.is_txn_open = False

    def do(self, kind: str, batch: list[Pair]) -> None:
        match kind:
            case "plain":
                self.log.put(*batch)
            case "idempotent":
                self.log.put(*batch, pid=9)
            case "lz4":
                self.log.put(*batch, compression=Compression.LZ4)
            case "txn1":
                self.is_txn_open = True
                self.log.put(*batch, pid=1, txn=True)
            case "commit1" | "abort1" if self.is_txn_open:
                self.is_txn_open = False
                self.log.end(1, commit=kind == "commit1")
            case "roll":
                self.log.roll()
            case "wait":
                self.log.clock.wall += 1500
            case "clean":
                self.results.append(self.log.clean())

    def files(self) -> dict[str, bytes]:
        names = self.log.disk.list("/data/t-0")
        return {name: self.log.disk.read(f"/data/t-0/{name}") for name in names}


def outcome(steps: list[tuple[str, list[Pair]]], map_slots: int, *, with_runs: bool) -> object:
    alone = patch.object(BatchRun, "read", return_value=False)
    with nullcontext() if with_runs else alone:
        filled = Filled(map_slots)
        for kind, batch in steps:
            filled.do(kind, batch)
        filled.do("roll", [])
        for _ in range(2):
            filled.log.checkpoint = None
            filled.do("clean", [])
            filled.do("wait", [])
    return filled.files(), filled.results


@settings(max_examples=150)
@given(moves, st.sampled_from([6, 100]))
def test_cleaning_by_runs_writes_the_same_files_as_batch_by_batch(
    steps: list[tuple[str, list[Pair]]], map_slots: int
) -> None:
    assert outcome(steps, map_slots, with_runs=True) == outcome(steps, map_slots, with_runs=False)


# -- steps -------------------------------------------------------------------------


def steps_of(log: CompactedLog) -> list[int]:
    dirty = dirty_part(log.log, None, log.clock.now())
    cleaning = CleaningRound(log.disk, log.log, dirty, log.memory, log.clock.now())
    return list(cleaning.run())


def test_step_over_runs_ends_after_a_number_of_bytes() -> None:
    log = CompactedLog()
    for at in range(3 * STEP_BYTES // 1000):
        log.put((b"k%d" % (at % 10), b"v" * 1000))
    log.roll()
    assert max(steps_of(log)) < STEP_BYTES + 2000
    assert len(log.pairs()) == 10


def test_step_ends_within_a_run_whose_batches_are_cleaned_alone() -> None:
    """Each of them costs as much as a batch outside of a run: the event loop waits."""
    log = CompactedLog()
    for at in range(4 * STEP_BATCHES):
        log.put((b"k%d" % at, None))  # needs a delete horizon
    log.roll()
    assert len(steps_of(log)) >= 4
    assert all(header.has_delete_horizon for header in log.batches())


def test_truncation_within_a_run_stops_the_round() -> None:
    log = CompactedLog()
    for at in range(2 * STEP_BATCHES):
        log.put((b"k%d" % at, None))
    log.roll()
    dirty = dirty_part(log.log, None, log.clock.now())
    steps = CleaningRound(log.disk, log.log, dirty, log.memory, log.clock.now()).run()
    next(steps)  # the keys are mapped
    next(steps)  # some of the run is cleaned
    log.log.truncate_to(Offset(STEP_BATCHES + 5))
    with pytest.raises(CleaningAborted):
        list(steps)
    assert len(log.pairs()) == STEP_BATCHES + 5
