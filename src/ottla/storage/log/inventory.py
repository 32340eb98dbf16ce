"""``segment-inventory``: what a log is known to hold, to tell lost files from deleted records.

    0                        version
    3735928559               CRC-32 of all bytes after this line
    1500 -1 81985529         log start, known end or -1, CRC-32 of the leader epochs
    2                        number of lines that follow
    1500 1620 65536 0 0      a segment: base offset, end offset, bytes,
    1620 1700 65012 34 917   and bytes and CRC-32 of its .txnindex

Text, one line each, every line ends with ``\\n``. Kafka ignores the file.

A segment is added once it is sealed and durable, the newest one when the log is closed. The known
end is that of the closed log; an open log has one only as long as it has lost its end. Before a
segment is deleted, truncated or replaced, the file is durably written without it. A log start that
advances is written soon afterwards, off the event loop, and in any case before a file is removed:
until then a crash brings the old start back, with all its records. So whatever the
file names existed, was durable and was not removed by the log itself: if it is not there any more,
or has another length, it is lost. The end offset shows where compaction has left a gap before the
next segment.

The file is evidence, not truth: a stale or missing one costs a question to the other replicas or
a check less, and never a record.
"""

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.types import Offset
from ottla.runtime.atomic_file import (
    TEMPORARY_SUFFIX,
    read_file,
    replace_file,
    replace_unsynced,
    write_temporary,
)
from ottla.runtime.ports import Disk
from ottla.storage.directory.checkpoints import encode_epochs
from ottla.storage.log.files import Kind, LogFiles, file_name
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments

FILE_NAME: Final = "segment-inventory"
DRAFT_SUFFIX: Final = ".next"
_VERSION: Final = "0"
_OPEN: Final = -1


class SegmentEntry(NamedTuple):
    """A segment as it was written. ``end_offset``: the offset after its last batch."""

    base_offset: Offset
    end_offset: Offset
    size: int
    aborted_bytes: int
    aborted_crc: int


class Inventory(NamedTuple):
    """The content of the file. ``log_end``: the log was durable up to there, at least."""

    log_start: Offset
    log_end: Offset | None
    epochs_crc: int
    segments: tuple[SegmentEntry, ...]


class MissingRange(NamedTuple):
    """Offsets that this replica once had and that its files no longer hold completely."""

    start: Offset
    end: Offset
    path: str
    reason: str


class FoundSegment(NamedTuple):
    """A segment file: its base offset and its length."""

    base_offset: Offset
    size: int


# -- the file --------------------------------------------------------------------


def encode(inventory: Inventory) -> bytes:
    """Return the bytes of the file."""
    end = _OPEN if inventory.log_end is None else inventory.log_end
    lines = [f"{inventory.log_start} {end} {inventory.epochs_crc}", str(len(inventory.segments))]
    lines += [" ".join(map(str, entry)) for entry in inventory.segments]
    body = "".join(f"{line}\n" for line in lines).encode()
    return f"{_VERSION}\n{zlib.crc32(body)}\n".encode() + body


def decode(data: bytes) -> Inventory | None:
    """Parse the file; None if it is damaged or of another version."""
    version, _, rest = data.partition(b"\n")
    crc, _, body = rest.partition(b"\n")
    if version != _VERSION.encode() or crc != b"%d" % zlib.crc32(body):
        return None
    with suppress(ValueError):
        head, count, *rows = body.decode().splitlines()
        log_start, log_end, epochs_crc = map(int, head.split())
        entries = [SegmentEntry(*map(int, row.split())) for row in rows]  # type: ignore[arg-type]
        if int(count) != len(entries):
            return None
        end = None if log_end == _OPEN else Offset(log_end)
        return Inventory(Offset(log_start), end, epochs_crc, tuple(entries))
    return None


def read_inventory(disk: Disk, directory: str) -> Inventory | None:
    """Read the inventory of a log; None if there is none, or it is damaged."""
    data = read_file(disk, f"{directory}/{FILE_NAME}")
    return None if data is None else decode(data)


def inherit_start(
    disk: Disk, directory: str, log_start: Offset, epochs: Iterable[EpochEntry]
) -> None:
    """Give a closed log the start and the leader epochs of the log that it is a copy of.

    The copy of a tiered log begins at its first local segment, and the log before it.
    """
    inventory = read_inventory(disk, directory)
    if inventory is not None:
        inherited = inventory._replace(log_start=log_start, epochs_crc=epochs_crc(epochs))
        replace_file(disk, f"{directory}/{FILE_NAME}", encode(inherited))


def epochs_crc(entries: Iterable[EpochEntry]) -> int:
    """Return the CRC-32 of a log's leader-epoch checkpoint."""
    return zlib.crc32(encode_epochs(entries))


# -- the rule --------------------------------------------------------------------


def find_missing(
    inventory: Inventory, present: Sequence[FoundSegment], log_start: Offset, directory: str
) -> list[MissingRange]:
    """Return the ranges of offsets that the files lack. Pure.

    ``present`` are the segments in order. What is missing after the last of them is not included:
    the log just ends earlier. The last one is not compared: the log has been appended to, or
    opening it checks its end.
    """
    sizes = dict(present)
    bases = [found.base_offset for found in present]
    ranges: list[MissingRange] = []
    for entry in inventory.segments:
        following = next((base for base in bases if base > entry.base_offset), None)
        if following is None or following <= log_start:
            continue
        path = f"{directory}/{file_name(entry.base_offset, Kind.LOG)}"
        size = sizes.get(entry.base_offset)
        if size is None:
            reason = "the segment is missing"
        elif size < entry.size or (size > entry.size and not _was_active(inventory, entry)):
            reason = f"the segment has {size} bytes instead of {entry.size}"
        else:
            continue
        start = max(entry.base_offset, log_start)
        ranges.append(MissingRange(start, following, path, reason))
    return merge_ranges(ranges)


def _was_active(inventory: Inventory, entry: SegmentEntry) -> bool:
    """Whether a segment was the newest one of a closed log, so that it may have grown since."""
    return entry.end_offset == inventory.log_end and entry == inventory.segments[-1]


def merge_ranges(ranges: Iterable[MissingRange]) -> list[MissingRange]:
    """Join ranges that overlap; the first one's file and reason stay."""
    merged: list[MissingRange] = []
    for each in sorted(ranges):
        if merged and each.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, each.end))
        else:
            merged.append(each)
    return merged


# -- the inventory of an open log --------------------------------------------------


class LogInventory:
    """Keeps the file in step with its log. Disk failures are ``OSError``.

    ``is_kept``: the log has such a file; otherwise nothing here has an effect.
    """

    def __init__(self, files: LogFiles, found: Inventory | None, *, is_kept: bool) -> None:
        self._files = files
        self.is_kept = is_kept
        self._entries = {} if found is None else {entry[0]: entry for entry in found.segments}
        # The log end of the file, if it is as a clean stop left it.
        self._closed_at = None if found is None else found.log_end
        # Whether the log start has advanced beyond the one in the file.
        self.is_stale = False
        self._writes = 0
        # Every segment below was considered; compared at each flush.
        self.noted_end = Offset(max(self._entries, default=0))

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self._files.directory}/{FILE_NAME}"

    def start_advanced(self, log_start: Offset) -> bool:
        """Note that the file names an earlier log start; False if the log has no such file."""
        self.forget_below(log_start)
        self.is_stale = self.is_kept
        return self.is_kept

    def draft(self, log_start: Offset, epochs: Iterable[EpochEntry]) -> "InventoryDraft":
        """Return the new contents, to be synced on another thread and then placed."""
        data = self._encode(log_start, epochs, None)
        return InventoryDraft(self._files.disk, f"{self.path}{DRAFT_SUFFIX}", data, self._writes)

    def place(self, draft: "InventoryDraft") -> bool:
        """Put synced contents in place; False if the file was written or removed meanwhile.

        A power failure leaves the old file or this one.

        Raises:
            OSError: the file is the old one.
        """
        if draft.writes != self._writes:
            return False
        try:
            self._files.disk.replace(draft.temporary, self.path)
        except FileNotFoundError:
            return False
        self._written(None)
        return True

    def begin(self, active: Segment, log_end: Offset) -> bool:
        """Begin to append to the newest segment: it is added again once it is sealed.

        True if the file must be written before that: recovery has cut off what it names, or the
        newest segment was sealed.
        """
        before = len(self._entries)
        self.forget_from(log_end)
        is_cut = len(self._entries) < before
        newest = self._entries.get(active.base_offset)
        was_sealed = newest is not None and newest.end_offset != self._closed_at
        self.forget([active.base_offset])
        self._forget_grown()
        self.noted_end = min(self.noted_end, active.base_offset)
        return is_cut or was_sealed

    def _forget_grown(self) -> None:
        """Drop the newest segment of the closed log if another has followed: it may have grown.

        A crash has left the file of the last clean stop. Without its log end, which the next
        write drops, the old length would count as that of a sealed segment.
        """
        last = max(self._entries, default=None)
        if last is not None and self._entries[last].end_offset == self._closed_at:
            self.forget([last])
            self.noted_end = min(self.noted_end, last)

    def entry(self, segment: Segment) -> SegmentEntry | None:
        """Return what is known of a segment; None before it is sealed and durable."""
        return self._entries.get(segment.base_offset)

    def is_closed_at(self, log_end: Offset) -> bool:
        """Whether the file is what a clean stop at ``log_end`` would write."""
        return not self.is_kept or log_end in (self._closed_at, 0)

    def note(self, segment: Segment, following: Offset, *, may_have_gap: bool) -> None:
        """Add a sealed and durable segment; ``following`` is where the next one begins.

        One that ends earlier is added only if compaction may have left the gap.
        """
        if not self.is_kept:
            return
        try:
            end, digest = segment.next_offset(), segment.txn_index.digest()
        except (CorruptBatch, UnsupportedMagic, FileNotFoundError):
            return  # the scrubber reports it, and a read rebuilds a lost index
        if end == following or (end < following and may_have_gap):
            base = segment.base_offset
            self._entries[base] = SegmentEntry(base, end, segment.size, *digest)

    def note_sealed(self, segments: Segments, upto: Offset, *, may_have_gap: bool) -> bool:
        """Add the sealed segments that are durable below ``upto``; True if one was added."""
        before = len(self._entries)
        for segment in segments.from_floor(self.noted_end):
            following = segments.end_of(segment, upto)
            if segment is segments.active or following > upto:
                break
            if segment.base_offset not in self._entries:
                self.note(segment, following, may_have_gap=may_have_gap)
            self.noted_end = following
        return len(self._entries) > before

    def forget(self, base_offsets: Iterable[Offset]) -> None:
        """Drop segments that are about to be removed. Write the file before that."""
        for base in base_offsets:
            self._entries.pop(base, None)

    def forget_range(self, start: Offset, end: Offset) -> None:
        """Drop the segments that begin in ``[start, end)``, or hold ``start``."""
        gone = (e for e in self._entries.values() if e.base_offset < end and e.end_offset > start)
        self.forget([entry.base_offset for entry in gone])

    def forget_from(self, offset: Offset) -> None:
        """Drop every segment that reaches above ``offset``: the log is about to be truncated."""
        self.forget([entry[0] for entry in self._entries.values() if entry.end_offset > offset])
        self.noted_end = min(self.noted_end, offset)

    def forget_below(self, offset: Offset) -> None:
        """Drop every segment that ends at or below ``offset``."""
        self.forget([entry[0] for entry in self._entries.values() if entry.end_offset <= offset])

    def write(
        self,
        log_start: Offset,
        epochs: Iterable[EpochEntry],
        log_end: Offset | None = None,
        *,
        is_synced: bool = True,
    ) -> None:
        """Write the file; durably, unless it only has more segments than before.

        Raises:
            OSError: the file holds the old content or the new.
        """
        if not self.is_kept:
            return
        replace = replace_file if is_synced else replace_unsynced
        replace(self._files.disk, self.path, self._encode(log_start, epochs, log_end))
        self._written(log_end)

    def _encode(
        self, log_start: Offset, epochs: Iterable[EpochEntry], log_end: Offset | None
    ) -> bytes:
        entries = tuple(self._entries[base] for base in sorted(self._entries))
        return encode(Inventory(log_start, log_end, epochs_crc(epochs), entries))

    def _written(self, log_end: Offset | None) -> None:
        self._closed_at = log_end
        self.is_stale = False
        self._writes += 1


class InventoryDraft:
    """New contents of an inventory under a temporary name; `sync` may run on any thread."""

    __slots__ = ("_data", "_disk", "path", "writes")

    def __init__(self, disk: Disk, path: str, data: bytes, writes: int) -> None:
        self._disk = disk
        self._data = data
        self.path = path
        self.writes = writes

    @property
    def temporary(self) -> str:
        """The name of the file that `sync` leaves."""
        return self.path + TEMPORARY_SUFFIX

    def sync(self) -> None:
        """Write the contents durably; nothing if the log was removed meanwhile."""
        with suppress(FileNotFoundError):
            write_temporary(self._disk, self.path, self._data, is_synced=True)
