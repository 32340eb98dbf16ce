"""The growing end of a segment: when to roll, how batches are written and indexed.

Every append of every partition passes through here, so this module is compiled where possible
(see `protocol/records/walker.py` on the two forms), and the numbers that each append changes are C
variables. Everything else of a segment is in `segment.py`.
"""

from array import array
from typing import TYPE_CHECKING, Final

from ottla.protocol.types import Buffer, Millis, Offset
from ottla.storage.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.storage.log.time_index import TimestampOffset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
    from ottla.runtime.ports import File
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

# How far ahead of the data space is reserved if `preallocate` is set.
_RESERVE_BYTES: Final = 1 << 26
_RELATIVE_MAX: cython.longlong = RELATIVE_OFFSET_MAX

RECENT_MAX: Final = 16
"""Batches at the end of a segment that are found without reading the file."""
_RECENT: cython.longlong = RECENT_MAX


@cython.cclass
class SegmentTail:
    """The state of a segment's end. Bytes after ``size`` are not part of the segment.

    `Segment` initializes every field, and implements the properties that are declared here.

    The newest batches are remembered, so that a reader at the end of the log causes no read of the
    file. Invariant: ``_recent_end`` is the size after the last `note`. If ``size`` differs, it was
    changed by other means (a truncation, a failed write), and nothing that is remembered counts.
    """

    size = cython.declare(cython.longlong, visibility="public")
    base_offset = cython.declare(cython.longlong, visibility="public")
    created = cython.declare(cython.longlong, visibility="public")
    jitter_ms = cython.declare(cython.longlong, visibility="public")
    offset_index = cython.declare(object, visibility="public")
    time_index = cython.declare(object, visibility="public")
    _age_ms_max = cython.declare(cython.longlong, visibility="public")
    _bytes_since_index = cython.declare(cython.longlong, visibility="public")
    _config = cython.declare(object, visibility="public")
    _file = cython.declare(object, visibility="public")
    _first_timestamp = cython.declare(object, visibility="public")
    _is_full = cython.declare(object, visibility="public")
    _reserved = cython.declare(cython.longlong, visibility="public")
    _has_largest: cython.bint
    _largest_timestamp: cython.longlong
    _largest_offset: cython.longlong
    _recent = cython.declare(object, visibility="public")
    _recent_count: cython.longlong
    _recent_end: cython.longlong

    @property
    def _largest(self) -> TimestampOffset | None:
        """The largest timestamp and the offset of its batch; None while it is not known."""
        if not self._has_largest:
            return None
        return TimestampOffset(Millis(self._largest_timestamp), Offset(self._largest_offset))

    @_largest.setter
    def _largest(self, largest: TimestampOffset | None) -> None:
        self._has_largest = largest is not None
        if largest is not None:
            self._largest_timestamp, self._largest_offset = largest

    def append(self, batch: Buffer, last_offset: Offset, timestamp: Millis, now: Millis) -> bool:
        """Write and record a batch; False, and nothing was done, if it needs a new segment."""
        size = len(batch)
        if self.should_roll(size, last_offset, timestamp, now):
            return False
        self.write(batch)
        self.note(last_offset, timestamp, size)
        return True

    @cython.ccall
    def should_roll(
        self,
        size: cython.longlong,
        last_offset: cython.longlong,
        timestamp: cython.longlong,
        now: cython.longlong,
    ) -> cython.bint:
        """Whether a batch of ``size`` bytes must go to a new segment.

        By size, by age according to the records' timestamps (by the clock if they have none), by
        a full index, or because its offsets are too far from the base.
        """
        held: cython.longlong = self.size
        if held > self._config.segment_bytes - size:
            return True
        if held > 0 and self._age_ms(timestamp, now) > self._age_ms_max - self.jitter_ms:
            return True
        if self._is_full is None:
            # Only a new entry can have changed the result.
            self._is_full = self.offset_index.is_full or self.time_index.is_full
        if self._is_full:
            return True
        return not 0 <= last_offset - self.base_offset <= _RELATIVE_MAX

    @cython.cfunc
    def _age_ms(self, timestamp: cython.longlong, now: cython.longlong) -> cython.longlong:
        first: Millis | None = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        if first is not None and first >= 0:
            # At least -1: the difference of two arbitrary values would not fit into 64 bits.
            return max(timestamp, -1) - first
        created: cython.longlong = self.created
        return now - created

    @cython.ccall
    def write(self, data: Buffer) -> object:
        """Write complete batches after the last one; call `note` for each of them afterwards."""
        if self._config.preallocate and self.size + len(data) > self._reserved:
            self._reserve(len(data))
        file: File | None = self._file
        if file is None:
            file = self.file
        file.pwrite(data, self.size)
        return None

    def _reserve(self, length: int) -> None:
        ahead = min(self.size + _RESERVE_BYTES, self._config.segment_bytes)
        self._reserved = max(ahead, self.size + length)
        self.file.preallocate(self._reserved)

    @cython.ccall
    def note(
        self, last_offset: cython.longlong, timestamp: cython.longlong, size: cython.longlong
    ) -> object:
        """Record a batch of ``size`` bytes that was written at the end, and index it."""
        if not self._has_largest:
            self._largest = self.largest
        if timestamp > self._largest_timestamp:
            self._largest_timestamp = timestamp
            self._largest_offset = last_offset
        if self._first_timestamp is None and not self.size:
            self._first_timestamp = timestamp
        if self._bytes_since_index > self._config.index_interval_bytes:
            self.offset_index.append(last_offset, self.size)
            self.time_index.append(self._largest)
            self._bytes_since_index = 0
            self._is_full = None
        self._bytes_since_index += size
        self._remember(last_offset, size)
        self.size += size
        return None

    @cython.cfunc
    def _remember(self, last_offset: cython.longlong, size: cython.longlong) -> object:
        """Remember the batch that was written at the end, in the place of the oldest one."""
        recent: array[int] | None = self._recent
        if recent is None:
            recent = self._recent = array("q", bytes(16 * RECENT_MAX))
        if self._recent_end != self.size:
            self._recent_count = 0
        at: cython.longlong = self._recent_count % _RECENT
        recent[at] = self.size
        recent[at + _RECENT] = last_offset
        self._recent_count += 1
        self._recent_end = self.size + size
        return None

    def forget_recent(self) -> None:
        """Forget the newest batches: the next readers look into the file."""
        self._recent = None
        self._recent_count = 0
        self._recent_end = -1

    def find_recent(self, offset: int) -> tuple[int, int] | None:
        """Return the position and size of the first batch that ends at or above ``offset``.

        None: it is not one of the newest batches, or there is none.
        """
        recent: array[int] | None = self._recent
        if recent is None or self._recent_end != self.size:
            return None
        count: cython.longlong = self._recent_count
        oldest: cython.longlong = max(0, count - _RECENT)
        wanted: cython.longlong = offset
        end: cython.longlong = self._recent_end
        at: cython.longlong = count - 1
        if recent[at % _RECENT + _RECENT] < wanted:
            return None  # after the last batch
        while at >= oldest:
            start: cython.longlong = recent[at % _RECENT]
            before: cython.longlong = self.base_offset - 1
            if start:
                if at == oldest:
                    return None  # where the batch before it ends is not known
                before = recent[(at - 1) % _RECENT + _RECENT]
            if before < wanted:
                return start, end - start
            end = start
            at -= 1
        return None

    @property
    def file(self) -> "File":
        """The ``.log`` file, opened when first needed."""
        raise NotImplementedError

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the offset of its batch, computed if it is not known."""
        raise NotImplementedError

    @property
    def first_timestamp(self) -> Millis | None:
        """The largest timestamp of the first batch, from which ``segment.ms`` counts."""
        raise NotImplementedError
