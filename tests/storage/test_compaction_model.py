"""Compaction against a model, and a crash at every disk operation of a round."""

from collections.abc import Callable
from functools import partial

import pytest
from compacted_log import CONFIG, SECRET, CompactedLog, Pair
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.storage.cleaner.compactor import Memory
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimCrash

pytestmark = pytest.mark.engine

KEYS = [b"a", b"b", b"c"]
values = st.sampled_from([b"1", b"2", None])
pairs = st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=3)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), pairs),
        st.tuples(st.just("idempotent"), pairs),
        st.tuples(st.just("txn1"), pairs),
        st.tuples(st.just("txn2"), pairs),
        st.tuples(st.sampled_from(["commit1", "abort1", "commit2", "abort2"]), st.just([])),
        st.tuples(st.sampled_from(["roll", "roll", "clean", "wait", "reopen"]), st.just([])),
    ),
    min_size=1,
    max_size=25,
)


def known(compacted: CompactedLog) -> list[tuple[int, ...]]:
    """What decides about a producer's next batch. Its last timestamp and coordinator may have
    gone with a tombstone or a marker, as in Kafka; they decide about expiry and markers only."""
    return sorted(
        (e.producer_id, e.producer_epoch, e.last_sequence, e.last_offset, e.txn_first_offset)
        for e in compacted.log.producers.entries()
    )


class Checked:
    """A log whose content after cleaning is compared with the content before."""

    def __init__(self, codec: Compression, map_slots: int) -> None:
        self.compacted = CompactedLog(replace(CONFIG, segment_bytes=600))
        self.compacted.memory = Memory(24 * map_slots, SECRET, load_factor=0.75)
        self.codec = codec
        self.open_txns: set[int] = set()

    def do(self, kind: str, batch: list[Pair]) -> None:
        compacted = self.compacted
        match kind:
            case "plain":
                compacted.put(*batch, compression=self.codec)
            case "idempotent":
                compacted.put(*batch, pid=9, compression=self.codec)
            case "txn1" | "txn2":
                pid = int(kind[-1])
                self.open_txns.add(pid)
                compacted.put(*batch, pid=pid, txn=True, compression=self.codec)
            case "commit1" | "commit2" | "abort1" | "abort2":
                pid = int(kind[-1])
                if pid in self.open_txns:
                    self.open_txns.discard(pid)
                    compacted.end(pid, commit=kind.startswith("commit"))
            case "roll":
                compacted.roll()
            case "wait":
                compacted.clock.wall += 1500
            case "reopen":
                before = compacted.pairs(), known(compacted)
                compacted.reopen()
                assert (compacted.pairs(), known(compacted)) == before
            case "clean":
                self.clean()

    def clean(self) -> None:
        compacted = self.compacted
        read, held = compacted.read_committed(), compacted.committed()
        everything = {record.offset: record for record in compacted.records()}
        producers = known(compacted)
        stable, end = compacted.log.last_stable_offset, compacted.log.log_end_offset
        upto = compacted.clean().end_offset
        assert compacted.committed() == held
        left = compacted.read_committed()
        assert [r.offset for r in left] == sorted({r.offset for r in left})
        for record in compacted.records():
            assert record == everything[record.offset]
        assert_only_obsolete_is_gone(read, left, upto)
        assert (compacted.log.last_stable_offset, compacted.log.log_end_offset) == (stable, end)
        assert known(compacted) == producers
        compacted.reopen()
        assert (compacted.log.last_stable_offset, compacted.log.log_end_offset) == (stable, end)
        assert known(compacted) == producers
        assert compacted.committed() == held


def assert_only_obsolete_is_gone(before: list[Record], left: list[Record], upto: int) -> None:
    """A removed record has a newer one of its key, or is a tombstone; all after ``upto`` stays."""
    newest = {record.key: record.offset for record in before}
    there = {record.offset for record in left}
    for record in before:
        if record.offset >= upto:
            assert record.offset in there
        if record.offset not in there:
            assert record.offset < newest[record.key] or record.value is None


@settings(max_examples=120)
@given(moves, st.sampled_from([Compression.NONE, Compression.LZ4]), st.sampled_from([6, 100]))
def test_reader_of_committed_records_sees_the_same_before_and_after(
    steps: list[tuple[str, list[Pair]]], codec: Compression, map_slots: int
) -> None:
    checked = Checked(codec, map_slots)
    for kind, batch in steps:
        checked.do(kind, batch)
    for pid in sorted(checked.open_txns):
        checked.compacted.end(pid, commit=True)
    checked.compacted.roll()
    for _ in range(3):
        checked.clean()
        checked.compacted.clock.wall += 1500
    checked.compacted.checkpoint = None
    checked.clean()


# -- a crash at every disk operation ---------------------------------------------


def filled(seed: int) -> CompactedLog:
    """Segments with obsolete records, tombstones and both kinds of transactions, all synced."""
    compacted = CompactedLog(
        replace(CONFIG, segment_bytes=500, producer_id_expiration_ms=10**9), seed=seed
    )
    for number in range(3):
        compacted.put((b"a", b"%d" % number), (b"b", b"%d" % number), pid=7)
        compacted.put((b"c", b"%d" % number), pid=1, txn=True)
        compacted.end(1, commit=number != 1)
        compacted.put((b"d", None if number == 1 else b"x"), (b"e%d" % number, b"y"))
        compacted.roll()
    compacted.put((b"a", b"last"))
    compacted.log.flush()
    return compacted


def run_until_crash(compacted: CompactedLog, k: int, work: Callable[[], object]) -> bool:
    """Run ``work`` with a crash at its ``k``-th disk operation; True when it completed."""
    compacted.disk.crash_at(k)
    try:
        work()
    except SimCrash:
        return False
    compacted.disk.crash_at(0)
    return True


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_crash_at_any_disk_operation_of_a_round_loses_nothing(is_power_lost: bool) -> None:
    outcomes: set[int] = set()
    for k in range(1, 500):
        compacted = filled(seed=k)
        held = compacted.committed()
        producers = known(compacted)
        end, total = compacted.log.log_end_offset, len(compacted.pairs())
        point = compacted.log.recovery_point
        is_done = run_until_crash(compacted, k, compacted.clean)
        compacted.disk.crash() if is_power_lost else compacted.disk.kill()
        compacted.disk.restart()
        compacted.log = compacted.open(LogCheckpoint(recovery_point=point))
        compacted.replicate()
        assert compacted.log.log_end_offset == end
        assert compacted.committed() == held
        assert known(compacted) == producers
        assert not [n for n in compacted.disk.list("/data/t-0") if n.endswith(("swap", "cleaned"))]
        outcomes.add(len(compacted.pairs()))
        compacted.put((b"a", b"after"), pid=7)
        compacted.roll()
        compacted.checkpoint = None
        compacted.clean()
        assert compacted.committed() == held | {b"a": b"after"}
        if is_done:
            break
    assert is_done
    assert {total, len(compacted.pairs())} & outcomes
    assert len(outcomes) > 1


def test_second_crash_during_recovery_loses_nothing() -> None:
    for first in range(1, 500):
        probe = filled(seed=first)
        if run_until_crash(probe, first, probe.clean):
            break
        second = 1 + first % 7
        compacted = filled(seed=first)
        held, end = compacted.committed(), compacted.log.log_end_offset
        point = compacted.log.recovery_point
        run_until_crash(compacted, first, compacted.clean)
        compacted.disk.crash()
        compacted.disk.restart()
        run_until_crash(
            compacted, second, partial(compacted.open, LogCheckpoint(recovery_point=point))
        )
        compacted.disk.crash()
        compacted.disk.restart()
        compacted.log = compacted.open(LogCheckpoint(recovery_point=point))
        compacted.replicate()
        assert (compacted.committed(), compacted.log.log_end_offset) == (held, end)
