"""Compaction against a model, and a crash at every disk operation of a round."""

from collections.abc import Callable
from functools import partial

import pytest
from compaction_world import CONFIG, SECRET, Pair, World
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.storage.cleaner import Memory
from ottla.storage.log_recovery import LogCheckpoint
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


def known(world: World) -> list[tuple[int, ...]]:
    """What decides about a producer's next batch. Its last timestamp and coordinator may have
    gone with a tombstone or a marker, as in Kafka; they decide about expiry and markers only."""
    return sorted(
        (e.producer_id, e.producer_epoch, e.last_sequence, e.last_offset, e.txn_first_offset)
        for e in world.log.producers.entries()
    )


class Checked:
    """A log whose cleaning is checked against what was in it before."""

    def __init__(self, codec: Compression, map_slots: int) -> None:
        self.world = World(replace(CONFIG, segment_bytes=600))
        self.world.memory = Memory(24 * map_slots, SECRET, load_factor=0.75)
        self.codec = codec
        self.open_txns: set[int] = set()

    def do(self, kind: str, batch: list[Pair]) -> None:
        world = self.world
        match kind:
            case "plain":
                world.put(*batch, compression=self.codec)
            case "idempotent":
                world.put(*batch, pid=9, compression=self.codec)
            case "txn1" | "txn2":
                pid = int(kind[-1])
                self.open_txns.add(pid)
                world.put(*batch, pid=pid, txn=True, compression=self.codec)
            case "commit1" | "commit2" | "abort1" | "abort2":
                pid = int(kind[-1])
                if pid in self.open_txns:
                    self.open_txns.discard(pid)
                    world.end(pid, commit=kind.startswith("commit"))
            case "roll":
                world.roll()
            case "wait":
                world.clock.wall += 1500
            case "reopen":
                before = world.pairs(), known(world)
                world.reopen()
                assert (world.pairs(), known(world)) == before
            case "clean":
                self.clean()

    def clean(self) -> None:
        world = self.world
        read, held = world.read_committed(), world.committed()
        everything = {record.offset: record for record in world.records()}
        producers = known(world)
        stable, end = world.log.last_stable_offset, world.log.log_end_offset
        upto = world.clean().end_offset
        assert world.committed() == held
        left = world.read_committed()
        assert [r.offset for r in left] == sorted({r.offset for r in left})
        for record in world.records():
            assert record == everything[record.offset]
        assert_only_obsolete_is_gone(read, left, upto)
        assert (world.log.last_stable_offset, world.log.log_end_offset) == (stable, end)
        assert known(world) == producers
        world.reopen()
        assert (world.log.last_stable_offset, world.log.log_end_offset) == (stable, end)
        assert known(world) == producers
        assert world.committed() == held


def assert_only_obsolete_is_gone(before: list[Record], left: list[Record], upto: int) -> None:
    """What is gone has a newer record of its key, or is a tombstone; all behind ``upto`` stays."""
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
        checked.world.end(pid, commit=True)
    checked.world.roll()
    for _ in range(3):
        checked.clean()
        checked.world.clock.wall += 1500
    checked.world.checkpoint = None
    checked.clean()


# -- a crash at every disk operation ---------------------------------------------


def filled(seed: int) -> World:
    """Segments with obsolete records, tombstones and both kinds of transactions, all synced."""
    world = World(replace(CONFIG, segment_bytes=500, producer_id_expiration_ms=10**9), seed=seed)
    for number in range(3):
        world.put((b"a", b"%d" % number), (b"b", b"%d" % number), pid=7)
        world.put((b"c", b"%d" % number), pid=1, txn=True)
        world.end(1, commit=number != 1)
        world.put((b"d", None if number == 1 else b"x"), (b"e%d" % number, b"y"))
        world.roll()
    world.put((b"a", b"last"))
    world.log.flush()
    return world


def run_until_crash(world: World, k: int, work: Callable[[], object]) -> bool:
    """Run ``work`` with a crash at its ``k``-th disk operation; True when it got through."""
    world.disk.crash_at(k)
    try:
        work()
    except SimCrash:
        return False
    world.disk.crash_at(0)
    return True


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_crash_at_any_disk_operation_of_a_round_loses_nothing(is_power_lost: bool) -> None:
    outcomes: set[int] = set()
    for k in range(1, 500):
        world = filled(seed=k)
        held = world.committed()
        producers = known(world)
        end, total = world.log.log_end_offset, len(world.pairs())
        point = world.log.recovery_point
        is_done = run_until_crash(world, k, world.clean)
        world.disk.crash() if is_power_lost else world.disk.kill()
        world.disk.restart()
        world.log = world.open(LogCheckpoint(recovery_point=point))
        world.replicate()
        assert world.log.log_end_offset == end
        assert world.committed() == held
        assert known(world) == producers
        assert not [n for n in world.disk.list("/data/t-0") if n.endswith(("swap", "cleaned"))]
        outcomes.add(len(world.pairs()))
        world.put((b"a", b"after"), pid=7)
        world.roll()
        world.checkpoint = None
        world.clean()
        assert world.committed() == held | {b"a": b"after"}
        if is_done:
            break
    assert is_done
    assert {total, len(world.pairs())} & outcomes
    assert len(outcomes) > 1


def test_second_crash_during_recovery_loses_nothing() -> None:
    for first in range(1, 500):
        probe = filled(seed=first)
        if run_until_crash(probe, first, probe.clean):
            break
        second = 1 + first % 7
        world = filled(seed=first)
        held, end = world.committed(), world.log.log_end_offset
        point = world.log.recovery_point
        run_until_crash(world, first, world.clean)
        world.disk.crash()
        world.disk.restart()
        run_until_crash(world, second, partial(world.open, LogCheckpoint(recovery_point=point)))
        world.disk.crash()
        world.disk.restart()
        world.log = world.open(LogCheckpoint(recovery_point=point))
        world.replicate()
        assert (world.committed(), world.log.log_end_offset) == (held, end)
