"""A log against a list: any order of operations, including restarts and power loss.

The model is small on purpose: segments of a few batches, two producers, offsets below a
hundred. In a larger one the interesting moments are too rare to be met.
"""

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_fixtures import (
    DIRECTORY,
    NOW,
    HandClock,
    append,
    batch_of,
    contents,
    open_log,
    raw_batches,
)

from ottla.protocol.faults import OffsetOutOfRange
from ottla.protocol.records.batch import batches, is_crc_valid
from ottla.protocol.records.writer import Producer
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimDisk

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=80)
PREALLOCATED = LogConfig(segment_bytes=300, index_interval_bytes=80, preallocate=True)


class LogAgainstAList(RuleBasedStateMachine):
    """``batches`` is the model: first offset, values, epoch, timestamp of each batch."""

    @initialize(seed=st.integers(0, 2**16), preallocate=st.booleans(), has_gaps=st.booleans())
    def begin(self, seed: int, preallocate: bool, has_gaps: bool) -> None:
        self.disk = SimDisk(seed)
        # In a log with gaps, one that power loss makes between segments is not detected.
        self.has_gaps = has_gaps
        self.disk.make_dirs(DIRECTORY)
        self.config = PREALLOCATED if preallocate else CONFIG
        self.clock = HandClock()
        self.batches: list[tuple[int, list[bytes], int, int]] = []
        self.start = self.end = self.synced = self.epoch = self.count = 0
        self.checkpoint = 0
        self.sequences: dict[int, int] = {}
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        checkpoint = LogCheckpoint(is_clean, self.checkpoint, self.start)
        self.log = open_log(self.disk, self.config, clock=self.clock, checkpoint=checkpoint)
        self.log.set_high_watermark(self.end)

    def ask_sequences(self) -> None:
        """The last batches of producers may be lost; they continue from what is left."""
        last = {each: self.log.producers.last_sequence(each) for each in self.sequences}
        self.sequences = {each: at + 1 for each, at in last.items() if at is not None}

    def next_values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%05d" % at for at in range(self.count - count, self.count)]

    # -- rules -------------------------------------------------------------------------------

    @rule(size=st.integers(1, 3), timestamp=st.integers(0, 9))
    def append_as_leader(self, size: int, timestamp: int) -> None:
        values = self.next_values(size)
        done = append(self.log, *values, timestamp=NOW + timestamp, epoch=self.epoch)
        assert (done.first_offset, done.last_offset) == (self.end, self.end + size - 1)
        self.batches.append((self.end, values, self.epoch, NOW + timestamp))
        self.end += size

    @rule(gap=st.integers(0, 3), sizes=st.lists(st.integers(1, 2), min_size=1, max_size=5))
    def append_as_follower(self, gap: int, sizes: list[int]) -> None:
        data, at = b"", self.end + gap * self.has_gaps
        for size in sizes:
            values = self.next_values(size)
            data += batch_of(*values, base_offset=at, leader_epoch=self.epoch)
            self.batches.append((at, values, self.epoch, NOW))
            at += size
        self.log.append_at(data, now=NOW)
        self.end = at

    @rule(producer=st.integers(1, 2))
    def append_idempotently_and_again(self, producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        fields = {"producer": Producer(producer, 0, sequence), "epoch": self.epoch}
        values = self.next_values(1)
        assert not append(self.log, *values, **fields).is_duplicate
        again = append(self.log, *values, **fields)
        assert (again.is_duplicate, again.first_offset) == (True, self.end)
        self.batches.append((self.end, values, self.epoch, NOW))
        self.end += 1
        self.sequences[producer] = sequence + 1

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced = self.end

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end + 1))
        assert self.log.truncate_to(offset) == (offset < self.end)
        if offset >= self.end:
            return
        self.batches = [each for each in self.batches if each[0] + len(each[1]) <= offset]
        last = self.batches[-1] if self.batches else (0, [])
        assert last[0] + len(last[1]) <= self.log.log_end_offset <= offset
        self.end = self.log.log_end_offset
        self.start = min(self.start, self.end)
        self.synced = min(self.synced, self.end)
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)
        self.ask_sequences()

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.set_high_watermark(self.end)
        self.log.advance_log_start(self.start)

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(data=st.data())
    def delete_oldest(self, data: st.DataObject) -> None:
        self.log.set_high_watermark(self.end)
        bases = [segment.base_offset for segment in self.log.segments]
        count = data.draw(st.integers(1, len(bases) - 1))
        self.log.delete_segments(bases[:count])
        self.start = max(self.start, bases[count])

    @rule()
    def purge(self) -> None:
        self.clock.pass_ms(self.config.file_delete_delay_ms)
        self.log.purge_deleted()

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.synced = self.checkpoint = self.end
        self.open(is_clean=True)
        assert self.log.report.segments_checked == []

    @rule()
    def kill_and_restart(self) -> None:
        self.disk.kill()
        self.disk.restart()
        self.open(is_clean=False)

    @precondition(lambda self: not self.has_gaps)
    @rule()
    def lose_power_and_restart(self) -> None:
        self.disk.crash()
        self.disk.restart()
        self.open(is_clean=False)
        survived = self.log.log_end_offset
        assert self.synced <= survived <= self.end
        self.batches = [each for each in self.batches if each[0] + len(each[1]) <= survived]
        self.end = survived
        self.log.set_high_watermark(self.end)
        self.ask_sequences()

    # -- invariants -------------------------------------------------------------------

    @invariant()
    def it_stands_where_the_list_does(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end

    @invariant()
    def every_record_is_there_and_no_other(self) -> None:
        expected = [
            (first + at, value)
            for first, values, _, _ in self.batches
            for at, value in enumerate(values)
            if first + at >= self.start
        ]
        assert contents(self.log) == expected

    @invariant()
    def every_offset_gives_its_batch_or_the_next(self) -> None:
        visible = [each for each in self.batches if each[0] + len(each[1]) > self.start]
        for offset in range(self.start, self.end):
            part = self.log.read(offset, 1, upto=self.end)
            wanted = next((f for f, values, _, _ in visible if f + len(values) > offset), None)
            assert (part.base_offset if part.length else None) == wanted
        for offset in (self.start - 1, self.end + 1):
            try:
                self.log.read(offset, 1, upto=self.end)
                raise AssertionError(f"{offset} was served")
            except OffsetOutOfRange:
                pass

    @invariant()
    def every_timestamp_gives_the_first_record_that_is_not_older(self) -> None:
        for timestamp in range(NOW - 1, NOW + 11, 3):
            wanted = next(
                (
                    first + at
                    for first, values, _, stamp in self.batches
                    for at in range(len(values))
                    if stamp >= timestamp and first + at >= self.start
                ),
                None,
            )
            found = self.log.offset_for_timestamp(timestamp)
            assert (found and found.offset) == wanted

    @invariant()
    def every_batch_on_disk_is_whole(self) -> None:
        for header, data in raw_batches(self.log):
            assert is_crc_valid(data, 0, header)
            assert sum(1 for _ in batches(data)) == 1

    @invariant()
    def epochs_are_those_of_the_records(self) -> None:
        for first, _, epoch, _ in self.batches:
            if first >= self.start:
                assert self.log.epochs.epoch_for_offset(first) == epoch


TestLogAgainstAList = LogAgainstAList.TestCase
# Shrinking such long runs takes minutes and is seldom worth it: the steps are printed.
TestLogAgainstAList.settings = settings(
    max_examples=settings.default.max_examples * 2,
    stateful_step_count=35,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)
