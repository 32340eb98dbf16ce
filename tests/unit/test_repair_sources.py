"""Sources of a repair, when a damaged replica leaves the ISR, and which bytes are usable."""

import pytest

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset
from ottla.replication.repair.repair_sources import order_sources, should_leave_isr, sound_batches


def batch(base: int, count: int = 1) -> bytes:
    records = [Record(Offset(base + at), Millis(1), b"k", b"v" * 50) for at in range(count)]
    return bytes(build_batch(records, base_offset=base))


def test_leader_is_asked_first_then_the_isr_then_the_rest() -> None:
    order = order_sources(1, 3, (1, 2, 3), (4, 1, 2, 3), lambda broker: broker != 9)
    assert order == [3, 2, 4]


def test_brokers_that_are_not_alive_and_missing_leaders_are_not_asked() -> None:
    assert order_sources(1, -1, (1, 2), (1, 2, 3), lambda broker: broker != 2) == [3]


def test_leader_leaves_only_if_another_in_sync_replica_is_alive() -> None:
    assert should_leave_isr(1, 1, (1, 2), lambda broker: True)
    assert not should_leave_isr(1, 1, (1, 2), lambda broker: broker != 2)
    assert not should_leave_isr(1, 1, (1,), lambda broker: True)


def test_follower_leaves_while_there_is_a_leader() -> None:
    assert should_leave_isr(1, 2, (1, 2), lambda broker: True)
    assert not should_leave_isr(1, -1, (1, 2), lambda broker: True)


def test_batches_of_the_range_are_taken_and_neighbours_left_out() -> None:
    sent = batch(0) + batch(1, 2) + batch(3) + batch(4)
    piece = sound_batches(sent, Offset(1), Offset(4))
    assert [bytes(each) for each in piece.batches] == [batch(1, 2), batch(3)]
    assert (piece.expected, piece.is_last) == (4, True)


def test_long_range_is_continued_after_the_last_complete_batch() -> None:
    sent = batch(1) + batch(2)[:-3]
    piece = sound_batches(sent, Offset(1), Offset(9))
    assert [bytes(each) for each in piece.batches] == [batch(1)]
    assert (piece.expected, piece.is_last) == (2, False)


def test_damaged_copy_is_no_source() -> None:
    sent = bytearray(batch(1) + batch(2))
    sent[-5] ^= 1
    with pytest.raises(CorruptBatch):
        sound_batches(sent, Offset(1), Offset(3))


def test_batches_cut_differently_are_no_source() -> None:
    with pytest.raises(CorruptBatch):
        sound_batches(batch(0, 3), Offset(1), Offset(3))
    with pytest.raises(CorruptBatch):
        sound_batches(batch(1, 3), Offset(1), Offset(3))


def test_first_batch_may_begin_before_the_range_where_the_log_starts_within_it() -> None:
    records = batch(3, 3) + batch(6)
    with pytest.raises(CorruptBatch, match="overlaps"):
        sound_batches(records, Offset(4), Offset(7))
    with pytest.raises(CorruptBatch, match="overlaps"):
        sound_batches(records, Offset(4), Offset(7), base_min=Offset(4))
    piece = sound_batches(records, Offset(4), Offset(7), base_min=Offset(3))
    assert b"".join(piece.batches) == records
    assert piece.is_last
