"""The append paths of a log: a client's or coordinator's batch, and batches of a leader.

The leader assigns offsets (`append_as_leader`); a follower keeps them (`append_at`). Both end in
`log_tail.py`, or write a run of batches at once.
"""

from ottla.protocol.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    patch_append_time,
    read_header,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.types import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset
from ottla.storage.directory.disk_health import DiskHealth
from ottla.storage.log.batch_checks import (
    Appended,
    BufferedBatch,
    Origin,
    answer_duplicate,
    check_leader_batch,
    check_producer,
    check_replicated,
    marker_of,
    split_leader_batches,
)
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_tail import LogTail
from ottla.storage.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.storage.log.producer_replay import apply_batch, note_aborted
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments


class LogAppends(LogTail):
    """The append paths. `Log` initializes every field."""

    log_end_offset: Offset
    producers: ProducerState
    _config: LogConfig
    _health: DiskHealth
    _appended_epoch: int
    _segments: Segments

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now: Millis,
        from_client: bool = True,
        transaction_version: int = 0,
        may_have_gaps: bool = False,
    ) -> Appended:
        """Assign offsets to a batch in place, and append it.

        A client's buffer holds one batch; a coordinator's may hold several, which are all checked
        before the first is appended. A rejected batch changes nothing. ``may_have_gaps``: see
        `check_leader_batch`.

        Raises:
            Fault: from `check_leader_batch` and `check_producer`.
            StorageFailed: the batch is not in the log and was not acknowledged.
        """
        self._health.check()
        header = read_header(batch)
        origin = Origin(leader_epoch, now, from_client, transaction_version)
        if header.length + LOG_OVERHEAD_BYTES != len(batch):
            return self._append_several(batch, origin)
        check_leader_batch(batch, 0, header, self._config, from_client, may_have_gaps=may_have_gaps)
        if header.producer_id >= 0:
            duplicate = check_producer(self.producers, header, marker_of(batch, 0, header), origin)
            if duplicate is not None:
                return answer_duplicate(duplicate)
        return self._append_one(batch, header, origin)

    def _append_one(
        self, batch: bytearray | memoryview, header: BatchHeader, origin: Origin
    ) -> Appended:
        """Append a checked batch. On the hot path: creates no object that it can avoid."""
        epoch, now, *_ = origin
        first = self.log_end_offset
        timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if self._config.is_log_append_time:
            patch_append_time(batch, 0, header, now)
            timestamp = append_time = now
        last = Offset(first + header.last_offset_delta)
        segment = self.append_checked(batch, last, timestamp, epoch, now)
        if header.producer_id >= 0:
            header = header._replace(base_offset=first, max_timestamp=timestamp)
            self._apply(segment, header, marker_of(batch, 0, header), now)
        return Appended(first, last, timestamp, append_time)

    def _append_several(self, batch: bytearray | memoryview, origin: Origin) -> Appended:
        """Check all of a coordinator's batches, then append them in order."""
        placed = split_leader_batches(batch, from_client=origin.from_client)
        for start, header in placed:
            check_leader_batch(batch, start, header, self._config, origin.from_client)
            marker = marker_of(batch, start, header)
            check_producer(self.producers, header, marker, origin)
        view = memoryview(batch)
        done = [
            self._append_one(view[each.start : each.end], each.header, origin) for each in placed
        ]
        largest = max(each.max_timestamp for each in done)
        return done[-1]._replace(first_offset=done[0].first_offset, max_timestamp=largest)

    def _apply(
        self, segment: Segment, header: BatchHeader, marker: EndTxnMarker | None, now: Millis
    ) -> None:
        """Update the producer state with a batch, and the index if it aborts a transaction."""
        completed = apply_batch(self.producers, header, marker, now)
        if completed is not None:
            with self._health:
                note_aborted(segment.txn_index, completed)

    def append_at(self, data: Buffer, *, now: Millis) -> Appended | None:
        """Append batches from a leader unchanged; None when ``data`` holds no complete batch.

        Offsets and epochs are kept; gaps are allowed, since compaction leaves them.

        Raises:
            CorruptBatch, UnsupportedMagic: damaged in transit; nothing was written.
            UnexpectedAppendOffset: begins before the log's end; nothing was written.
            StorageFailed: the disk failed; a prefix of the batches may be in the log.
        """
        self._health.check()
        placed = check_replicated(data, self.log_end_offset)
        if not placed:
            return None
        view, first, last = memoryview(data), placed[0], placed[-1].header.last_offset
        largest = max(each.header.max_timestamp for each in placed)
        header, end = first.header, placed[-1].end
        is_next = header.base_offset == self.log_end_offset and header.producer_id < 0
        if is_next and len(placed) == 1 and not view.readonly:
            batch, epoch = view[first.start : end], header.leader_epoch
            self.append_checked(batch, last, largest, epoch, now)  # keeps its offset and epoch
        elif self._segments.active.should_roll(end - first.start, last, largest, now):
            self._append_rolling(view, placed, now)
        else:
            self._append_run(view, placed, now)
        return Appended(header.base_offset, last, largest)

    def _append_rolling(self, view: memoryview, placed: list[BufferedBatch], now: Millis) -> None:
        """Write a leader's batches, rolling to new segments as needed."""
        run: list[BufferedBatch] = []
        for each in placed:
            length = each.end - run[0].start if run else 0
            if run and self._segments.active.should_roll(length, *each.note[:2], now):
                self._append_run(view, run, now)
                run = []
            run.append(each)
        self._append_run(view, run, now)

    def _append_run(self, view: memoryview, run: list[BufferedBatch], now: Millis) -> None:
        """Write a leader's batches that fit into one segment, and update all derived state."""
        markers = [marker_of(view, *each) for each in run]
        for _, header in run:
            if header.leader_epoch != self._appended_epoch:
                self._begin_epoch(header.leader_epoch, header.base_offset)
        data = view[run[0].start : run[-1].end]
        last, largest = run[-1].header.last_offset, max(each.header.max_timestamp for each in run)
        segment = self._segments.active
        if segment.should_roll(len(data), last, largest, now):
            is_far = last - self.log_end_offset > RELATIVE_OFFSET_MAX
            segment = self._roll(run[0].header.base_offset if is_far else self.log_end_offset, now)
        before = segment.size
        try:
            segment.write(data)
            for each in run:
                segment.note(*each.note)
        except OSError as error:
            raise self._undo(segment, before, error) from error
        self.log_end_offset = Offset(last + 1)
        for (_, header), marker in zip(run, markers, strict=True):
            if header.producer_id >= 0:
                self._apply(segment, header, marker, now)
        self.producers.skip_to(Offset(last + 1))
