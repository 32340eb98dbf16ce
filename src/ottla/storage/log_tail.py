"""The growing end of a log: one batch about which nothing is left to ask is given its place.

Every produced batch comes through here, so this is compiled where that is possible, and makes
no object that need not be (a `NewType` is a call, too). What decides about a batch, and all else
of a log, is in `log.py`.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES
from ottla.protocol.types import LeaderEpoch, Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
    from ottla.protocol.faults import StorageFailed
    from ottla.storage.segment import Segment
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch: how a batch begins


@cython.cclass
class LogTail:
    """What a log knows of its end. `Log` gives all of it a value."""

    log_end_offset = cython.declare(cython.longlong, visibility="public")
    producers = cython.declare(object, visibility="public")
    epochs = cython.declare(object, visibility="public")
    _health = cython.declare(object, visibility="public")
    _segments = cython.declare(object, visibility="public")
    _log_start = cython.declare(cython.longlong, visibility="public")
    _recovery_point = cython.declare(cython.longlong, visibility="public")
    _high_watermark = cython.declare(cython.longlong, visibility="public")

    @property
    def log_start_offset(self) -> Offset:
        """The first offset a reader may ask for."""
        offset: Offset = self._log_start
        return offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below is durable. To be written to the directory's checkpoint.

        A truncation lowers it: the checkpoint must be written again before anything that
        is appended after it is acknowledged, else a crash trusts what it should check.
        """
        offset: Offset = self._recovery_point
        return offset

    @property
    def high_watermark(self) -> Offset:
        """Below it everything is replicated, as far as the log was told."""
        offset: Offset = self._high_watermark
        return offset

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Learn what is replicated; kept within the log. Returns what it now is."""
        reached: Offset = max(self._log_start, min(offset, self.log_end_offset))
        self._high_watermark = reached
        self.producers.on_high_watermark(reached)
        return reached

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
        first: Offset = self.log_end_offset
        _PLACE.pack_into(batch, 0, first, len(batch) - LOG_OVERHEAD_BYTES, epoch)
        if self.epochs.latest != epoch:
            self._note_epoch(epoch, first)
        segment: Segment = self._segments.active
        before = segment.size
        try:
            if not segment.append(batch, last, timestamp, now):
                segment = self._roll(first, now)
                before = segment.size
                segment.write(batch)  # whatever it would say: there is no other
                segment.note(last, timestamp, len(batch))
        except OSError as error:
            raise self._undo(segment, before, error) from error
        self.log_end_offset = last + 1
        self.producers.map_end_offset = last + 1
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
