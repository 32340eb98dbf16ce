"""Checking stored batches: every flipped bit is found, sound batches pass, damage is not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_fixtures import append, contents, fill, open_log

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import batches
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.runtime.disk import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.batch_check import (
    WINDOW_BYTES,
    Cursor,
    DamagedRange,
    check_window,
    scrub_step,
)
from ottla.storage.scrub.scrub_plan import ScrubPlan
from ottla.storage.scrub.scrub_spans import spans
from simulation.disk import SimDisk

ALL = 1 << 30
COUNT = 23


def check(log: Log) -> list[tuple[Segment, DamagedRange]]:
    """Check every segment from its start to its end."""
    found = []
    for segment, start, part in spans(log):
        cursor: Cursor | None = start
        while cursor is not None and cursor.position < part.end:
            window = check_window(segment.file, cursor, part)
            if window.damage is not None:
                found.append((segment, window.damage))
            cursor = window.cursor
    return found


def read_from(log: Log, offset: int) -> list[tuple[int, bytes]]:
    found = log.read(Offset(offset), ALL, upto=log.log_end_offset)
    data = found.file.pread(found.length, found.position)
    return [(header.base_offset, data[at : at + header.size]) for at, header in batches(data)]


def test_sound_segments_have_no_damage() -> None:
    log = open_log(SimDisk())
    fill(log, COUNT)
    assert len(log.segments) > 3
    assert check(log) == []


@given(st.data())
def test_any_flipped_bit_is_found_and_its_batch_is_named(data: st.DataObject) -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, COUNT)
    segment, _, part = data.draw(st.sampled_from(spans(log)))
    before = {base: bytes_ for base, bytes_ in _all_batches(segment)}
    position = data.draw(st.integers(0, part.end - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    byte = segment.file.pread(1, position)[0]
    segment.file.pwrite(bytes([byte ^ bit]), position)

    damages = [damage for at, damage in check(log) if at is segment]

    assert any(damage.position <= position < damage.end for damage in damages)
    offsets = {offset for d in damages for offset in range(d.offset, d.offset_end)}
    start = 0
    for base, batch in before.items():
        if start <= position < start + len(batch):
            assert base in offsets
        start += len(batch)
    assert {at for at, _ in check(log)} == {segment}


def test_both_of_two_batches_that_contradict_each_other_are_damaged() -> None:
    log = open_log(SimDisk())
    fill(log, COUNT)
    segment = log.segments[1]
    bases = [base for base, _ in _all_batches(segment)]
    size = len(_all_batches(segment)[0][1])
    segment.file.pwrite((bases[0] + 1).to_bytes(8), 0)
    ((_, damage),) = check(log)
    assert (damage.position, damage.end) == (0, 2 * size)
    assert (damage.offset, damage.offset_end) == (bases[0], bases[2])


def _all_batches(segment: Segment) -> list[tuple[int, bytes]]:
    data = segment.file.pread(segment.size, 0)
    return [(header.base_offset, data[at : at + header.size]) for at, header in batches(data)]


def test_batch_larger_than_a_window_is_checked_whole() -> None:
    log = open_log(SimDisk(), LogConfig(max_message_bytes=WINDOW_BYTES * 2))
    append(log, b"x" * (WINDOW_BYTES + 5000))
    append(log, b"y")
    assert check(log) == []
    log.segments[0].file.pwrite(b"z", WINDOW_BYTES + 1000)
    ((_, damage),) = check(log)
    assert (damage.offset, damage.offset_end) == (0, 1)


def test_known_damage_is_never_read_and_all_else_is() -> None:
    log = open_log(SimDisk())
    fill(log, COUNT)
    segment = log.segments[1]
    bases = [base for base, _ in _all_batches(segment)]
    assert len(bases) >= 3
    damaged = bases[1]
    position = sum(len(batch) for base, batch in _all_batches(segment) if base < damaged)
    segment.file.pwrite(b"\xff", position + 70)
    ((at, damage),) = check(log)
    assert [base for base, _ in read_from(log, bases[0])][:2] == bases[:2], "not known yet"

    assert log.damaged_ranges.add(at, damage)
    assert not log.damaged_ranges.add(at, damage), "known once"

    assert [base for base, _ in read_from(log, bases[0])] == [bases[0]]
    with pytest.raises(CorruptBatch):
        log.read(Offset(damaged), ALL, upto=log.log_end_offset)
    assert [base for base, _ in read_from(log, bases[2])] == bases[2:]


def test_truncation_forgets_damage_that_it_removes() -> None:
    log = open_log(SimDisk())
    fill(log, COUNT)
    segment = log.segments[1]
    base = _all_batches(segment)[1][0]
    damage = DamagedRange(1, segment.size, Offset(base), log.segments[2].base_offset, "flipped")
    log.damaged_ranges.add(segment, damage)
    log.truncate_to(log.segments[2].base_offset)
    assert log.damaged_ranges, "all of it is still there"
    log.truncate_to(Offset(base))
    assert not log.damaged_ranges
    fill(log, 3)
    assert read_from(log, base)


def test_repaired_segment_reads_as_before() -> None:
    log = open_log(SimDisk())
    fill(log, COUNT)
    before = contents(log)
    segment = log.segments[1]
    good = segment.file.pread(segment.size, 0)
    segment.file.pwrite(bytes(len(good)), 0)
    ((at, damage),) = check(log)
    assert (damage.position, damage.end) == (0, segment.size)
    log.damaged_ranges.add(at, damage)

    log.patch(segment, 0, good)
    log.damaged_ranges.remove(at, damage)
    segment.recheck_indexes()

    assert check(log) == []
    assert contents(log) == before


def test_damage_that_reads_right_the_second_time_is_ignored(tmp_path) -> None:
    log = open_log(RealDisk(), directory=str(tmp_path / "orders-0"))
    fill(log, COUNT)
    segment, cursor, part = spans(log)[0]
    reads = []

    class Flaky(RealDisk):
        def open(self, path, mode):
            file = super().open(path, mode)
            real = file.pread

            class Once:
                def fileno(self):
                    return file.fileno()

                def close(self):
                    file.close()

                def pread(self, length, position):
                    data = real(length, position)
                    reads.append(position)
                    return b"\0" * length if len(reads) == 1 else data

            return Once()

    window = scrub_step(Flaky(), segment.path, cursor, part)
    assert window.damage is None
    assert len(reads) == 2
    assert window.cursor is None


def test_logs_scrubbed_longest_ago_come_first() -> None:
    a, b, c = (TopicPartition("t", index) for index in range(3))
    plan = ScrubPlan(1000, Millis(100))
    assert plan.wait_ms(Millis(0)) == 100
    assert plan.wait_ms(Millis(150)) == 0
    plan.begin([b, a], Millis(150))
    assert [plan.next(Millis(200)), plan.next(Millis(300)), plan.next(Millis(300))] == [b, a, None]
    assert plan.wait_ms(Millis(400)) == 750, "an interval after the last pass began"
    plan.begin([a, b, c], Millis(1150))
    assert [plan.next(Millis(1150)) for _ in range(3)] == [c, b, a]
    assert not plan.is_passing
