"""Compact one log: map keys to their newest offsets, rewrite the segments, swap them in.

A round is a generator. Each step takes a few milliseconds and yields how many bytes it processed,
so that the caller can run other work between two steps, or throttle the disk. Closing it between
two steps leaves the log as it is.

Segments are written under ``.cleaned`` names and synced before they replace the segments they
were made from (`Log.replace_segments`): a crash at any moment leaves the old ones or the new.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.faults import StorageFailed
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import Buffer, Millis, Offset
from ottla.runtime.ports import Disk
from ottla.storage.cleaner.batch_cleaner import (
    BatchCleaner,
    CleanStats,
    check_batch,
    marker_kind,
    unpack,
)
from ottla.storage.cleaner.batch_run import ALONE, COPIED, RECORDS_MAX, BatchRun, RunLimits
from ottla.storage.cleaner.compaction import (
    CleanedTransactions,
    Dirty,
    Lags,
    LastRecord,
    Limits,
    LogOffsets,
    Round,
    decide_batch,
    find_dirty,
    plan_groups,
)
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.log.files import INDEXES, Kind, LogFiles, State
from ottla.storage.log.flushing import PathSync
from ottla.storage.log.log import Log
from ottla.storage.log.scan import BatchWindow, StoredBatch
from ottla.storage.log.segment import Segment

# A step ends with the batch that makes it so many bytes or batches: about 2 ms. Batches that are
# cleaned alone cost by their number, 0.03 ms each; those of a run (`batch_run.py`) by their bytes.
STEP_BYTES: Final = 128 * 1024
STEP_BATCHES: Final = 64
WRITE_BYTES: Final = 1 << 20


class CleaningAborted(Exception):
    """The log was truncated, trimmed or closed during cleaning. Finished swaps stay."""


class OffsetMapTooSmall(Exception):
    """Not one dirty batch fits into ``log.cleaner.dedupe.buffer.size``: no round can progress."""


class Memory(NamedTuple):
    """Memory of the offset map: its bytes, a 16-byte secret for its hash, and its load factor."""

    bytes_max: int
    secret: bytes
    load_factor: float = 0.9


class CleanResult(NamedTuple):
    """``end_offset`` is the log's new first dirty offset, written to the cleaner checkpoint."""

    end_offset: Offset
    stats: CleanStats


class _Facts:
    """A segment as `compaction.py` sees it; reads the disk only for the properties it needs."""

    __slots__ = ("segment",)

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @property
    def base_offset(self) -> Offset:
        return self.segment.base_offset

    @property
    def size(self) -> int:
        return self.segment.size

    @property
    def index_size(self) -> int:
        indexes = (self.segment.offset_index, self.segment.time_index)
        return max(len(index) * index.ENTRY.size for index in indexes)

    @property
    def largest_timestamp(self) -> Millis:
        return self.segment.largest_timestamp

    @property
    def first_timestamp(self) -> Millis | None:
        return self.segment.first_timestamp


def dirty_part(log: Log, checkpoint: Offset | None, now: Millis) -> Dirty:
    """Find the part of a log that may be cleaned; ``checkpoint`` is the end of the clean part."""
    return find_dirty(
        [_Facts(segment) for segment in log.segments],
        LogOffsets(checkpoint, log.log_start_offset, log.last_stable_offset, log.log_end_offset),
        Lags(log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms),
        now,
    )


class CleaningRound:
    """One round over one log. Iterate `run`, then read ``result``.

    ``unsynced`` has the files that the next step will sync. A caller that cannot wait for the disk
    has them synced before.

    ``now`` decides which delete horizons have passed, ``stamp`` sets new ones: see `TrustedClock`.
    """

    def __init__(
        self,
        disk: Disk,
        log: Log,
        dirty: Dirty,
        memory: Memory,
        now: Millis,
        stamp: Millis | None = None,
    ) -> None:
        self._files = LogFiles(disk, log.directory)
        self._log = log
        self._dirty = dirty
        self._memory = memory
        self._now = now
        self._stamp = now if stamp is None else stamp
        # A sealed segment changes only by truncation, which makes the offset map stale.
        self._sizes = {segment.base_offset: segment.size for segment in log.segments[:-1]}
        self._run = BatchRun()
        self.result = CleanResult(dirty.first_dirty, CleanStats())
        self.unsynced: tuple[PathSync, ...] = ()

    def run(self) -> Iterator[int]:
        """Run the round, yielding the bytes processed since the last yield.

        Raises:
            CleaningAborted: the log changed meanwhile. OffsetMapTooSmall: see there.
            CorruptBatch, InvalidRecord, UnsupportedMagic: the log is damaged; it must not be
                cleaned until it is repaired. StorageFailed: the disk failed.
        """
        if self._dirty.first_dirty >= self._dirty.first_uncleanable:
            return
        memory = self._memory
        offset_map = OffsetMap(memory.bytes_max, memory.secret, memory.load_factor)
        try:
            yield from self._build(offset_map)
            end = Offset(offset_map.latest_offset + 1)
            if end <= self._dirty.first_dirty:
                raise OffsetMapTooSmall(f"{self._log.directory}: {offset_map.capacity} keys")
            yield from self._clean_upto(end, offset_map)
            self.result = CleanResult(end, self.result.stats)
        except OSError as error:
            raise StorageFailed(self._log.directory, str(error)) from error
        finally:
            offset_map.close()

    # -- first pass: the newest offset of each key ---------------------------

    def _build(self, offset_map: OffsetMap) -> Iterator[int]:
        """Fill the map from the dirty part, as far as its capacity allows."""
        dirty, log = self._dirty, self._log
        transactions = CleanedTransactions()
        transactions.add_aborted(log.collect_aborted(dirty.first_dirty, dirty.first_uncleanable))
        segments = [s for s in log.segments if s.base_offset < dirty.first_uncleanable]
        ends = [*(s.base_offset for s in segments[1:]), dirty.first_uncleanable]
        for segment, end in zip(segments, ends, strict=True):
            if end <= dirty.first_dirty:
                continue
            is_whole = yield from self._map_segment(segment, offset_map, transactions)
            if not is_whole:
                return
            # Offsets at the end that an earlier round removed are known to be absent.
            offset_map.latest_offset = Offset(end - 1)

    def _map_segment(
        self, segment: Segment, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> Generator[int, None, bool]:
        """Add the keys of a segment to the map; return False when the map is full."""
        first = segment.find(self._dirty.first_dirty)
        position = segment.size if first is None else first.position
        reader = _Reader(segment, position, self._end_of(segment), self._run)
        step = _Step()
        while reader.has_more:
            before = reader.position
            if reader.read_run(offset_map.room):
                self._note_run(reader, offset_map)
            elif not self._note(reader.take(), offset_map, transactions):
                return False
            self.result.stats.map_bytes_read += reader.position - before
            if step.add(reader.position - before, is_alone=not reader.is_run):
                yield step.take()
                self._check(segment)
        yield step.take()
        self._check(segment)
        return True

    def _note_run(self, reader: "_Reader", offset_map: OffsetMap) -> None:
        """Add the keys of a run, for which there is room.

        `CleanedTransactions` need not know: it begins what is due with the next other batch.
        """
        run, first_dirty = reader.run, self._dirty.first_dirty
        offset_map.put(reader.buffer, run, run.base_offset, first_dirty)
        if run.end_offset > first_dirty:
            offset_map.latest_offset = Offset(run.end_offset - 1)

    def _note(
        self, whole: StoredBatch, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Add the keys of a batch; False when the map is full. Aborted records are skipped."""
        header, first_dirty = whole.header, self._dirty.first_dirty
        if header.is_control:
            transactions.on_marker(header, marker_kind(whole))
        elif not transactions.on_data(header) and header.records_count:
            region, spans = unpack(whole, self._log.config.max_decompressed_message_bytes)
            if not offset_map.put(region, spans, header.base_offset, first_dirty):
                return False
        if header.last_offset >= first_dirty:
            offset_map.latest_offset = header.last_offset
        return True

    # -- second pass: rewrite the segments -----------------------------------

    def _clean_upto(self, end: Offset, offset_map: OffsetMap) -> Iterator[int]:
        """Clean every segment that begins below ``end``, grouping neighbours."""
        log = self._log
        round_ = Round(
            self._now,
            self._stamp,
            log.config.delete_retention_ms,
            self._dirty.first_uncleanable,
            {
                entry.producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.entries()
            },
            log.config.max_decompressed_message_bytes,
        )
        cleaner = BatchCleaner(offset_map, round_, self.result.stats)
        transactions = CleanedTransactions()
        facts = [_Facts(s) for s in log.segments if s.base_offset < end]
        limits = Limits(log.config.segment_bytes, log.config.segment_index_bytes)
        for group in plan_groups(facts, limits, self._dirty.first_uncleanable):
            segments = [each.segment for each in group]
            yield from self._clean_group(segments, cleaner, transactions)

    def _clean_group(
        self, group: Sequence[Segment], cleaner: BatchCleaner, transactions: CleanedTransactions
    ) -> Iterator[int]:
        """Write one segment that replaces ``group``, and swap it in."""
        for segment in group:
            self._check(segment)
        base = group[0].base_offset
        fresh = Segment.create(
            self._files, base, self._log.config, now=self._now, state=State.CLEANED
        )
        is_whole = False
        try:
            for segment in group:
                yield from self._clean_into(fresh, segment, cleaner, transactions)
            fresh.seal()
            self.unsynced = _files_of(self._files, fresh)
            yield 0
            for file in self.unsynced:
                file.sync()
            self.unsynced = ()
            for segment in group:
                self._check(segment)
            is_whole = True
        finally:
            if not is_whole:
                self._discard(fresh)
        self._log.replace_segments([fresh], [segment.base_offset for segment in group])

    def _clean_into(
        self,
        fresh: Segment,
        segment: Segment,
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
    ) -> Iterator[int]:
        base, end = segment.base_offset, self._end_of(segment)
        transactions.add_aborted(self._log.collect_aborted(base, end))
        output = _Output(fresh)
        reader = _Reader(segment, 0, end, self._run)
        step = _Step()
        while reader.has_more:
            for size, is_alone in self._clean_next(reader, cleaner, transactions, output):
                if step.add(size, is_alone=is_alone):
                    output.flush()
                    yield step.take()
                    self._check(segment)
        output.flush()
        for txn in transactions.take_retained():
            fresh.txn_index.append(txn)
        yield step.take()
        self._check(segment)

    def _clean_next(
        self,
        reader: "_Reader",
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
        output: "_Output",
    ) -> Iterator[tuple[int, bool]]:
        """Clean a run of batches or a single one; yield the bytes of each piece of this work.

        Together with them: whether the piece is a batch that was cleaned alone.
        """
        if not reader.read_run(RECORDS_MAX):
            whole = reader.take()
            self._clean_batch(whole, cleaner, transactions, output)
            yield whole.header.size, True
            return
        run, at = reader.run, reader.run.positions
        for part in cleaner.clean_run(run, reader.buffer):
            if part.outcome == ALONE:
                for number in range(part.first, part.stop):
                    self._clean_batch(reader.batch(number), cleaner, transactions, output)
                    yield at[number + 1] - at[number], True
                continue
            if part.outcome == COPIED:
                kept = memoryview(reader.buffer)[at[part.first] : at[part.stop]]
                output.add(kept, run.notes(part.first, part.stop))
            yield at[part.stop] - at[part.first], False

    def _clean_batch(
        self,
        whole: StoredBatch,
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
        output: "_Output",
    ) -> None:
        """Write what replaces a batch, if anything does."""
        header = whole.header
        if header.is_control:
            may_discard = transactions.on_marker(header, marker_kind(whole))
        else:
            may_discard = transactions.on_data(header)
        cleaned = cleaner.clean(whole, decide_batch(header, cleaner.round, may_discard))
        if cleaned is not None:
            kept, data = cleaned
            output.add(data, [(kept.last_offset, kept.max_timestamp, len(data))])

    def _end_of(self, segment: Segment) -> Offset:
        """Return where the next segment begins; there is one, since this one is not active."""
        following = (s.base_offset for s in self._log.segments)
        return min(base for base in following if base > segment.base_offset)

    def _check(self, segment: Segment) -> None:
        """Abort when the log has changed since the round began: the offset map is stale then."""
        is_there = not self._log.is_failed and any(each is segment for each in self._log.segments)
        if not is_there or segment.size != self._sizes[segment.base_offset]:
            raise CleaningAborted(self._log.directory)

    def _discard(self, fresh: Segment) -> None:
        fresh.close()
        # Files left behind do no harm: opening the log removes them.
        with suppress(OSError):
            for kind in (Kind.LOG, *INDEXES):
                self._files.remove_if_there(fresh.base_offset, kind, State.CLEANED)


class _Reader:
    """Reads a segment's batches once CRC and offsets are checked; the CRC covers no offsets.

    Each is in a run of plain batches, or taken alone. ``end`` is the end of the segment's offsets.
    """

    def __init__(self, segment: Segment, position: int, end: Offset, run: BatchRun) -> None:
        self._window = BatchWindow(segment.file, position, segment.size)
        self._expected = segment.base_offset
        self._end = end
        self._run_position = position
        self.run = run
        self.is_run = False

    @property
    def has_more(self) -> bool:
        """Whether there is another batch."""
        return self._window.has_more

    @property
    def position(self) -> int:
        """How far the segment was read."""
        return self._window.position

    @property
    def buffer(self) -> bytes:
        """The bytes that the positions of the run refer to."""
        return self._window.buffer

    def read_run(self, records_max: int) -> bool:
        """Read a run of plain batches; False if the next batch has to be taken alone."""
        window, run, start = self._window, self.run, self._window.load()
        limits = RunLimits(STEP_BYTES, records_max, self._expected, self._end)
        self.is_run = run.read(window.buffer, start, limits)
        if self.is_run:
            self._run_position = window.position
            window.position += run.size
            self._expected = run.end_offset
        return self.is_run

    def take(self) -> StoredBatch:
        """Return the next batch; raises as `check_batch`."""
        whole = self._window.take()
        check_batch(whole, self._expected, self._end)
        self._expected = whole.header.next_offset
        return whole

    def batch(self, number: int) -> StoredBatch:
        """Return a batch of the run."""
        start, first = self.run.positions[number], self.run.positions[0]
        header = read_header(self.buffer, start)
        return StoredBatch(self._run_position + start - first, header, self.buffer, start)


class _Step:
    """Counts what a step has processed."""

    def __init__(self) -> None:
        self._moved = 0
        self._batches = 0

    def add(self, size: int, *, is_alone: bool) -> bool:
        """Count a batch, or some of a run; say whether the step is long enough."""
        self._moved += size
        self._batches += is_alone
        return self._moved >= STEP_BYTES or self._batches >= STEP_BATCHES

    def take(self) -> int:
        """Return the bytes of the step, and begin another one."""
        moved, self._moved, self._batches = self._moved, 0, 0
        return moved


class _Output:
    """Collects batches and writes them to a segment together."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._parts: list[Buffer] = []
        self._notes: list[tuple[Offset, Millis, int]] = []
        self._bytes = 0

    def add(self, data: Buffer, notes: Sequence[tuple[Offset, Millis, int]]) -> None:
        """Add batches: last offset, largest timestamp and size of each."""
        self._parts.append(data)
        self._notes.extend(notes)
        self._bytes += len(data)
        if self._bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._parts:
            return
        self._segment.write(b"".join(self._parts))
        for last_offset, timestamp, size in self._notes:
            self._segment.note(last_offset, timestamp, size)
        self._parts.clear()
        self._notes.clear()
        self._bytes = 0


def _files_of(files: LogFiles, segment: Segment) -> tuple[PathSync, ...]:
    """Return a segment's files, to be synced; their names become durable when they are renamed."""
    kinds = (Kind.LOG, *INDEXES)
    paths = (files.path(segment.base_offset, kind, segment.state) for kind in kinds)
    return tuple(PathSync(files.disk, path) for path in paths)
