"""Check stored batches: headers, CRCs and the order of offsets, one window of a file at a time.

Segments of old records are sent by ``sendfile`` and not read by this process, so a flipped bit on
disk goes unnoticed until a client checks the CRC. The scrubber reads what nothing else reads.

A CRC covers a batch from its attributes on. Base offset, length and leader epoch come before them;
they are checked against the neighbours: offsets ascend, epochs do not descend, a batch ends where
the next one begins. Where two neighbours contradict each other both are reported, since either may
be the damaged one.

Functions here only read, and may run on a worker thread.
"""

from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, is_crc_valid, read_header
from ottla.protocol.types import Offset
from ottla.runtime.page_cache import ColdFile
from ottla.runtime.ports import Disk, File

WINDOW_BYTES: Final = 1 << 20
"""Bytes read at a time; a larger batch is read whole."""


class DamagedRange(NamedTuple):
    """A range of a segment file that does not hold the batches that were written there.

    Bytes ``[position, end)`` should hold the offsets ``[offset, offset_end)``. A sound batch begins
    at ``end``, or the checked part of the file ends there.
    """

    position: int
    end: int
    offset: Offset
    offset_end: Offset
    cause: str


class Part(NamedTuple):
    """The part of a segment to check: bytes below ``end``, offsets below ``limit``.

    A batch begins at ``end``, or the file ends there. No leader epoch is above ``epoch_max``;
    None if that is not known.
    """

    end: int
    limit: Offset
    epoch_max: int | None = None


class Cause(NamedTuple):
    """What is wrong with a batch. ``is_of_two``: or with the previous one."""

    text: str
    is_of_two: bool = False


class Cursor(NamedTuple):
    """The progress of a check.

    The next batch begins at ``position``; its offsets are at or above ``offset``, its leader epoch
    is at least ``epoch``. ``before`` is the cursor one batch earlier, None at the first batch.
    """

    position: int
    offset: Offset
    epoch: int = -1
    before: "Cursor | None" = None


class Window(NamedTuple):
    """The result of one step: the next cursor (None at the end), bytes read, damage found.

    ``offset_end``: the offset after the last batch, at the end of a part without damage there.
    """

    cursor: Cursor | None
    size: int
    damage: DamagedRange | None = None
    offset_end: Offset | None = None


def check_window(file: File, cursor: Cursor, part: Part) -> Window:
    """Check the batches of one window, up to the first damaged range.

    Raises:
        OSError: the file cannot be read.
    """
    start = cursor.position
    data = file.pread(min(WINDOW_BYTES, part.end - start), start)
    while cursor.position < part.end:
        at = cursor.position - start
        try:
            header = read_header(data, at)
        except (CorruptBatch, UnsupportedMagic) as fault:
            if at and len(data) - at < HEADER_BYTES and start + len(data) < part.end:
                break  # incomplete in the window, not in the file
            return _damaged(file, cursor, part, len(data), None, Cause(str(fault)))
        if len(data) - at < header.size <= part.end - cursor.position:
            if at:
                break
            data = file.pread(header.size, start)
        cause = _find_cause(data, at, header, cursor, part)
        if cause is not None:
            return _damaged(file, cursor, part, len(data), header, cause)
        before = cursor._replace(before=None)
        position = cursor.position + header.size
        cursor = Cursor(position, header.next_offset, header.leader_epoch, before)
    if cursor.position >= part.end:
        return Window(None, len(data), offset_end=cursor.offset)
    return Window(cursor, len(data))


def _find_cause(
    data: bytes, at: int, header: BatchHeader, cursor: Cursor, part: Part
) -> Cause | None:
    """Return what is wrong with a batch; None if it is sound."""
    if header.size > part.end - cursor.position:
        return Cause(f"batch length {header.length} exceeds the segment")
    if not is_crc_valid(data, at, header):
        return Cause("the CRC does not match")
    if header.last_offset_delta < 0 or header.last_offset >= part.limit:
        return Cause(f"offset {header.last_offset} does not belong in this segment")
    return _find_disorder(header, cursor, part)


def _find_disorder(header: BatchHeader, cursor: Cursor, part: Part) -> Cause | None:
    """Return a contradiction to the batches before, or to the leader epochs of the log."""
    if part.epoch_max is not None and header.leader_epoch > part.epoch_max:
        return Cause(f"leader epoch {header.leader_epoch} is above {part.epoch_max}")
    if header.base_offset < cursor.offset:
        return Cause(f"offset {header.base_offset} follows {cursor.offset - 1}", is_of_two=True)
    if header.leader_epoch < cursor.epoch:
        return Cause(f"epoch {header.leader_epoch} follows {cursor.epoch}", is_of_two=True)
    return None


def _damaged(
    file: File, cursor: Cursor, part: Part, size: int, header: BatchHeader | None, cause: Cause
) -> Window:
    """Describe a damaged range: it ends at the next sound batch, or at the end of the part."""
    first = cursor.before if cause.is_of_two and cursor.before is not None else cursor
    end, offset_end, after = part.end, part.limit, None
    if header is not None:
        following = cursor.position + header.size
        sound = _sound_header(file, following, part, first.offset)
        if sound is not None:
            end, offset_end = following, sound.base_offset
            after = Cursor(end, offset_end, first.epoch)
    return Window(
        after, size, DamagedRange(first.position, end, first.offset, offset_end, cause.text)
    )


def _sound_header(file: File, position: int, part: Part, offset: Offset) -> BatchHeader | None:
    """Return the header of a sound batch that begins at ``position``; None if there is none."""
    if position >= part.end:
        return None
    data = file.pread(min(WINDOW_BYTES, part.end - position), position)
    try:
        header = read_header(data)
    except (CorruptBatch, UnsupportedMagic):
        return None
    if len(data) < header.size <= part.end - position:
        data = file.pread(header.size, position)
    is_sound = _find_cause(data, 0, header, Cursor(position, offset), part) is None
    return header if is_sound else None


def scrub_step(disk: Disk, path: str, cursor: Cursor, part: Part) -> Window:
    """Check one window of the file at ``path``, without filling the page cache with it.

    Only a batch that reads wrong twice is damaged: memory and cables fail, too. Runs on a worker
    thread.

    Raises:
        FileNotFoundError: the segment was removed. OSError: it cannot be read.
    """
    file = ColdFile(disk, path)
    try:
        was_cached = file.is_cached(cursor.position)
        window = check_window(file.file, cursor, part)
        if window.damage is not None:
            file.forget(window.damage.end - cursor.position, cursor.position)
            window = check_window(file.file, cursor, part)
        if not was_cached:
            file.forget(window.size, cursor.position)
        return window
    finally:
        file.close()
