"""The growing end of a log: one batch about which nothing is left to ask is given its place.

Every produced batch comes through here, so this is compiled where that is possible, and makes
no object that need not be. What decides about a batch, and all else of a log, is in `log.py`.
"""

from typing import TYPE_CHECKING

from ottla.protocol.records.batch import patch_offset
from ottla.protocol.types import LeaderEpoch, Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol.faults import StorageFailed
    from ottla.storage.health import Health
    from ottla.storage.leader_epochs import LeaderEpochs
    from ottla.storage.producer_state import ProducerState
    from ottla.storage.segment import Segment
    from ottla.storage.segments import Segments


class LogTail:
    """What a log knows of its end."""

    _health: "Health"
    _segments: "Segments"
    _log_start: Offset
    _recovery_point: Offset
    _high_watermark: Offset
    log_end_offset: Offset
    producers: "ProducerState"
    epochs: "LeaderEpochs"

    @property
    def log_start_offset(self) -> Offset:
        """The first offset a reader may ask for."""
        return self._log_start

    @property
    def recovery_point(self) -> Offset:
        """Everything below is durable. To be written to the directory's checkpoint.

        A truncation lowers it: the checkpoint must be written again before anything that
        is appended after it is acknowledged, else a crash trusts what it should check.
        """
        return self._recovery_point

    @property
    def high_watermark(self) -> Offset:
        """Below it everything is replicated, as far as the log was told."""
        return self._high_watermark

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Learn what is replicated; kept within the log. Returns what it now is."""
        offset = max(self._log_start, min(offset, self.log_end_offset))
        self._high_watermark = offset
        self.producers.on_high_watermark(offset)
        return offset

    def append_checked(
        self,
        batch: bytearray | memoryview,
        last: Offset,
        timestamp: Millis,
        epoch: LeaderEpoch,
        now: Millis,
    ) -> "Segment":
        """Append one batch that was checked, to end at offset ``last``; return its segment.

        It gets its offset and epoch in place; ``timestamp`` is its largest. What its producer
        may send next is not taken note of.

        Raises:
            StorageFailed: it is not in the log and never acknowledged.
        """
        if self._health.failure is not None:
            self._health.check()
        first = self.log_end_offset
        patch_offset(batch, 0, first, epoch)
        if not self.epochs.is_latest(epoch):
            self._note_epoch(epoch, first)
        segment = self._segments.active
        before = segment.size
        try:
            if not segment.append(batch, last, timestamp, now):
                segment = self._roll(first, now)
                before = segment.size
                segment.write(batch)  # whatever it would say: there is no other
                segment.note(last, timestamp, len(batch))
        except OSError as error:
            raise self._undo(segment, before, error) from error
        end = Offset(last + 1)
        self.log_end_offset = end
        self.producers.map_end_offset = end
        return segment

    def _note_epoch(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Write down a new leader epoch before the first batch that has it."""
        if epoch >= 0 and self.epochs.assign(epoch, offset):
            self._write_epochs()

    def _write_epochs(self) -> None:
        raise NotImplementedError

    def _roll(self, base: Offset, now: Millis) -> "Segment":
        raise NotImplementedError

    def _undo(self, segment: "Segment", before: int, error: OSError) -> "StorageFailed":
        raise NotImplementedError
