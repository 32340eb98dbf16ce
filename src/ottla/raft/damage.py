"""Distinguishes damage in a metadata log from what a power loss may leave.

Every batch is checked, from the first segment on. An invalid batch can have two causes:

    torn write   it was never durable: truncate it and continue, as after any crash
    damage       it was durable, so it may have counted for a majority: the node must not start

It is damage if the log was closed cleanly, if the offset is below the recovery point, or if valid
batches follow and the bytes in between were written: a lost write leaves zeros.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, Fault
from ottla.protocol.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, is_crc_valid, read_header
from ottla.protocol.types import Offset
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.storage.log.files import Kind, State, file_name, parse_name
from ottla.storage.log.scan import cause, whole_batches

# How far behind an invalid batch to search for a valid one; a batch has at most 8 MiB.
SEARCH_BYTES_MAX: Final = 64 << 20
# A batch header has fewer zeros in a row, and a lost sector has more.
ZEROS_MIN: Final = 16


class LastRun(NamedTuple):
    """What the last run left: whether it closed the log, and how much it knew to be durable."""

    is_clean: bool = False
    recovery_point: Offset | None = None


class InvalidBatch(NamedTuple):
    """The first invalid batch: where it is, and the offset of the next valid batch, if any."""

    path: str
    position: int
    offset: Offset
    reason: str
    following: Offset | None
    is_unwritten: bool
    """Whether bytes between it and the next valid batch appear never to have been written."""

    def is_damage(self, known: LastRun) -> bool:
        """Return whether a crash cannot have caused it."""
        if known.is_clean or self.offset < (known.recovery_point or 0):
            return True
        return self.following is not None and not self.is_unwritten

    def __str__(self) -> str:
        follows = (
            "no valid batch follows, and it was known to be durable"
            if self.following is None
            else f"valid records follow from offset {self.following} on, so it is no torn write"
        )
        where = f"{self.path} is damaged at byte {self.position} (offset {self.offset})"
        return f"{where}: {self.reason}; {follows}"


def segment_bases(disk: Disk, directory: str) -> list[Offset]:
    """Return the base offsets of a log's segments, oldest first. Raises OSError."""
    return [
        name.offset
        for name in map(parse_name, disk.list(directory))
        if name is not None and name.kind is Kind.LOG and name.state is State.LIVE
    ]


def find_invalid_batch(disk: Disk, directory: str) -> tuple[Offset, InvalidBatch | None]:
    """Return the end of the valid batches of a metadata log, and the first invalid one, if any.

    Raises:
        OSError: a segment cannot be read.
    """
    expected = Offset(0)
    segments = segment_bases(disk, directory)
    for at, base in enumerate(segments):
        path = f"{directory}/{file_name(base, Kind.LOG)}"
        if at and base != expected:
            before = f"{directory}/{file_name(segments[at - 1], Kind.LOG)}"
            reason = f"the next segment begins at offset {base}"
            is_short = base > expected  # its end may never have been durable
            return expected, InvalidBatch(
                before, disk.size(before), expected, reason, base, is_short
            )
        file = disk.open(path, OpenMode.READ)
        try:
            expected, wrong = _check_segment(file, base)
        finally:
            file.close()
        if wrong is not None:
            following = wrong.following if at == len(segments) - 1 else segments[at + 1]
            return expected, wrong._replace(following=following)
    return expected, None


def _check_segment(file: File, base: Offset) -> tuple[Offset, InvalidBatch | None]:
    size, position, expected, epoch = file.size(), 0, base, 0
    try:
        for whole in whole_batches(file, 0, size):
            header = whole.header
            if not is_crc_valid(whole.buffer, whole.start, header):
                raise CorruptBatch("CRC does not match")
            if header.base_offset != expected or header.last_offset_delta < 0:
                raise CorruptBatch(f"offset {header.base_offset}, expected {expected}")
            if header.leader_epoch < epoch:  # not covered by the CRC
                raise CorruptBatch(f"epoch {header.leader_epoch} after epoch {epoch}")
            expected, position = header.next_offset, position + header.size
            epoch = header.leader_epoch
    except Fault as error:
        rest = file.pread(min(size - position, SEARCH_BYTES_MAX), position)
        if not any(rest):
            return expected, None  # preallocated space, never written
        found = next(_valid_batches(rest, expected), None)
        between = rest if found is None else rest[: found[0]]
        following = None if found is None else found[1]
        reason, has_zeros = cause(error, file.path), bytes(ZEROS_MIN) in between
        return expected, InvalidBatch(file.path, position, expected, reason, following, has_zeros)
    return expected, None


def _valid_batches(data: bytes, expected: Offset) -> Iterator[tuple[int, Offset]]:
    """Yield the positions of valid batches behind the first byte, and their offsets."""
    at = data.find(MAGIC, MAGIC_AT + 1)
    while at >= 0:
        start = at - MAGIC_AT
        if len(data) - start >= HEADER_BYTES:
            with suppress(Fault):
                header = read_header(data, start)
                if header.base_offset >= expected and is_crc_valid(data, start, header):
                    yield start, header.base_offset
        at = data.find(MAGIC, at + 1)
