"""The growing end of a log: assigns offsets to a checked batch and writes it.

Every produced batch passes through here, so this module is compiled where possible, and creates no
object that it can avoid (calling a `NewType` costs, too). The checks, and everything else of a
log, are in `log.py`.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES, MAGIC
from ottla.protocol.types import LeaderEpoch, Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
    from ottla.protocol.faults import StorageFailed
    from ottla.protocol.records.batch import BatchHeader
    from ottla.runtime.ports import File
    from ottla.storage.log.segment import Segment
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

NO_BATCH: Final = -2
"""The leader epoch of no batch; -1 is that of a batch without one."""

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch: how a batch begins
# The same without the epoch, the magic, and the last offset delta after CRC and attributes.
_EXTENT: Final = Struct(">qi4xb6xi")


@cython.cclass
class LogTail:
    """The state of a log's end. `Log` initializes every field."""

    log_end_offset = cython.declare(cython.longlong, visibility="public")
    producers = cython.declare(object, visibility="public")
    epochs = cython.declare(object, visibility="public")
    _health = cython.declare(object, visibility="public")
    # The leader epoch of the last batch that was appended since the log was opened or truncated.
    _appended_epoch = cython.declare(cython.longlong, visibility="public")
    _segments = cython.declare(object, visibility="public")
    # Whether `purge_deleted`, or a flush, may have work. Read for every log, each second.
    has_deleted_segments = cython.declare(cython.bint, visibility="public")
    has_unsynced_roll = cython.declare(cython.bint, visibility="public")
    damaged_ranges = cython.declare(object, visibility="public")
    _log_start = cython.declare(cython.longlong, visibility="public")
    _recovery_point = cython.declare(cython.longlong, visibility="public")
    _high_watermark = cython.declare(cython.longlong, visibility="public")

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that may be read."""
        offset: Offset = self._log_start
        return offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below is durable. To be written to the directory's checkpoint.

        A truncation lowers it: the checkpoint must be written again before anything that
        is appended afterwards is acknowledged, otherwise recovery trusts what it should check.
        """
        offset: Offset = self._recovery_point
        return offset

    @property
    def high_watermark(self) -> Offset:
        """Everything below is replicated, as far as the log knows."""
        offset: Offset = self._high_watermark
        return offset

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Set the high watermark, limited to the log's range; return the new value."""
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
        """Append one checked batch that ends at offset ``last``; return its segment.

        Its offset and epoch are set in place; ``timestamp`` is its largest. The producer state is
        not updated.

        Raises:
            StorageFailed: the batch is not in the log and was not acknowledged.
        """
        if self._health.failure is not None:
            self._health.check()
        first: Offset = self.log_end_offset
        _PLACE.pack_into(batch, 0, first, len(batch) - LOG_OVERHEAD_BYTES, epoch)
        if self._appended_epoch != epoch:
            self._begin_epoch(epoch, first)
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

    def append_next(
        self, batch: memoryview, header: "BatchHeader", epoch: LeaderEpoch, now: Millis
    ) -> Offset:
        """Append the next batch of an idempotent producer, as `append_checked`; return its offset.

        The producer state is updated as by `Log.append_as_leader`.
        """
        first: Offset = self.log_end_offset
        last = Offset(first + header.last_offset_delta)
        self.append_checked(batch, last, header.max_timestamp, epoch, now)
        self.producers.apply(
            header,
            first_offset=first,
            last_offset=last,
            timestamp=header.max_timestamp,
            now=now,
        )
        return first

    def read_recent(self, offset: Offset, upto: Offset, bytes_max: int) -> bytes | None:
        """Return the batches from the one with ``offset`` on, as far as they are below ``upto``.

        They are those that `Log.read` locates, read at once. None if they are more than
        ``bytes_max`` or not among the newest, or if there is anything to report: `Log.read` does.
        """
        segment: Segment = self._segments.active
        file: File | None = segment._file
        extent = self._recent_extent(segment, offset, upto)
        if extent is None or file is None or self._health.failure is not None:
            return None
        start, end, size = extent
        if end - start > bytes_max or self.damaged_ranges:
            return None
        try:
            data = file.pread(end - start, start)
        except OSError:
            return None
        if len(data) != end - start:
            return None
        base, length, magic, delta = _EXTENT.unpack_from(data)
        is_whole = magic == MAGIC and length + LOG_OVERHEAD_BYTES == size and base + delta >= offset
        return data if is_whole else None

    @property
    def has_recent_aborts(self) -> bool:
        """Whether the segment of the newest batches has the marker of an aborted transaction.

        If not, `Log.collect_aborted` finds none for what `read_recent` returns.
        """
        return not self._segments.active.txn_index.is_empty

    @cython.ccall
    def _recent_extent(
        self, segment: "Segment", offset: cython.longlong, upto: cython.longlong
    ) -> "tuple[int, int, int] | None":
        """Return where the batches of `read_recent` begin and end, and the size of the first."""
        end_offset: cython.longlong = self.log_end_offset
        if offset < self._log_start or offset >= upto or upto > end_offset:
            return None
        first = segment.find_recent(offset)
        after = first
        if upto < end_offset:
            after = segment.find_recent(upto)
        if first is None or after is None:
            return None
        start, size = first
        end = segment.size if upto == end_offset else after[0]
        return (start, end, size) if end - start >= size else None

    def _begin_epoch(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Prepare the files of the log for the first batch of a leader epoch."""
        raise NotImplementedError

    def _roll(self, base: Offset, now: Millis) -> "Segment":
        raise NotImplementedError

    def _undo(self, segment: "Segment", before: int, error: OSError) -> "StorageFailed":
        raise NotImplementedError
