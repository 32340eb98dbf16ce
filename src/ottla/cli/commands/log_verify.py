"""Check the files of a log for consistency, without changing them.

In a segment, every batch must be complete and have the right CRC, its records must decompress and
match its record count, offsets must increase from the segment's base offset, and leader epochs must
not decrease. Index entries must be complete, increase, and point to the batches they describe. In a
log, segments must follow each other and the leader epochs agree with the batches. Zero bytes after
the last batch of the last segment are preallocated space, not a problem.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ottla.cli.commands.log_dump import DAMAGE, TEXT_NAMES, NotDumpable, dump_file
from ottla.protocol.faults import CorruptBatch, Fault, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.batch import BatchHeader, is_crc_valid
from ottla.protocol.records.reader import unpack_region
from ottla.protocol.records.walker import walk_spans
from ottla.protocol.types import LeaderEpoch, Offset
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.storage.directory.checkpoints import LEADER_EPOCH, CorruptCheckpoint, read_epochs
from ottla.storage.directory.partition_names import parse_name as parse_directory
from ottla.storage.log.files import FileName, Kind, State, file_name, parse_name
from ottla.storage.log.inventory import FoundSegment, find_missing, read_inventory
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.offset_index import OffsetIndex
from ottla.storage.log.scan import StoredBatch, whole_batches
from ottla.storage.log.time_index import TimeIndex
from ottla.storage.log.transaction_index import CorruptIndex, TransactionIndex

_UNBOUNDED: Final = 2**31 - 1
_ZERO_CHUNK: Final = 1 << 20
FINDINGS_MAX: Final = 1000
"""Problems reported for each file at most: a file may be damaged in every entry."""


class LogProblem(NamedTuple):
    """A problem, and where it is."""

    path: str
    where: str
    problem: str


class _Placed(NamedTuple):
    """The batches that index entries are checked against."""

    header: BatchHeader
    max_timestamp_so_far: int


@dataclass(slots=True)
class _Segment:
    """What was read of a segment: batches by position, in order."""

    path: str
    base: Offset
    is_last: bool
    batches: dict[int, _Placed] = field(default_factory=dict)
    next_offset: int = 0
    epoch: int = -1
    findings: list[LogProblem] = field(default_factory=list)

    def tell(self, where: str, problem: str, path: str | None = None) -> None:
        """Record a problem."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(LogProblem(path or self.path, where, problem))


class Verified(Protocol):
    """Receives the progress of a verification."""

    def batch(self, size: int) -> None:
        """Count a batch of ``size`` bytes."""

    def segment(self) -> None:
        """Count a segment, with its indexes."""


class _Uncounted:
    """Progress that nobody watches."""

    def batch(self, size: int) -> None:
        """Ignore it."""

    def segment(self) -> None:
        """Ignore it."""


_UNCOUNTED: Final = _Uncounted()


def segment_sizes(disk: Disk, path: str) -> list[int]:
    """Return the bytes of each segment that `verify` reads for the same path."""
    if not disk.is_dir(path):
        return [disk.size(path)] if _is_live_segment(path) else []
    names = disk.list(path)
    own = [disk.size(f"{path}/{name}") for name in names if _is_live_segment(name)]
    inner = [f"{path}/{name}" for name in names if parse_directory(name) is not None]
    return own + [size for each in inner if disk.is_dir(each) for size in _segments(disk, each)]


def _segments(disk: Disk, directory: str) -> list[int]:
    names = filter(_is_live_segment, disk.list(directory))
    return [disk.size(f"{directory}/{name}") for name in names]


def _is_live_segment(path: str) -> bool:
    found = parse_name(path.rpartition("/")[2])
    return found is not None and (found.kind, found.state) == (Kind.LOG, State.LIVE)


def verify(disk: Disk, path: str, verified: Verified = _UNCOUNTED) -> Iterator[LogProblem]:
    """Yield the problems of a file, a partition directory, or a whole log directory.

    Raises:
        OSError: a file cannot be read.
    """
    if not disk.is_dir(path):
        yield from _verify_file(disk, path, verified)
        return
    names = disk.list(path)
    if any(parse_name(name) is not None for name in names):
        yield from verify_partition(disk, path, verified)
    for name in names:
        inner = f"{path}/{name}"
        if disk.is_dir(inner) and parse_directory(name) is not None:
            yield from verify_partition(disk, inner, verified)
        elif name in TEXT_NAMES or name.endswith(".checkpoint"):
            yield from _verify_readable(disk, inner)


def _verify_file(disk: Disk, path: str, verified: Verified) -> Iterator[LogProblem]:
    found = parse_name(path.rpartition("/")[2])
    if found is not None and found.kind is Kind.LOG:
        yield from _verify_segment(disk, path, found, verified, is_last=True).findings
    else:
        yield from _verify_readable(disk, path)


def verify_partition(
    disk: Disk, directory: str, verified: Verified = _UNCOUNTED
) -> Iterator[LogProblem]:
    """Yield the problems of one log, segment by segment and across segments."""
    names = disk.list(directory)
    found = [(name, parse_name(name)) for name in names]
    live = [
        each
        for _, each in found
        if each is not None and each.kind is Kind.LOG and each.state is State.LIVE
    ]
    before: _Segment | None = None
    epochs, chain = _Epochs(disk, directory), _Chain(disk, directory)
    yield from epochs.findings
    yield from chain.missing(disk, live)
    for at, each in enumerate(live):
        path = f"{directory}/{file_name(each.offset, Kind.LOG)}"
        segment = _verify_segment(disk, path, each, verified, is_last=at + 1 == len(live))
        if before is not None and before.next_offset > segment.base:
            segment.tell(f"offset {segment.base}", f"{before.path} goes on to {before.next_offset}")
        epochs.check(segment, LeaderEpoch(-1 if before is None else before.epoch))
        chain.check(disk, segment, before)
        yield from segment.findings
        before = segment
    for name, parsed in found:
        is_snapshot = parsed is not None and parsed.kind is Kind.SNAPSHOT
        is_text = name in TEXT_NAMES and name != LEADER_EPOCH
        if is_snapshot or is_text or name.endswith(".checkpoint"):
            yield from _verify_readable(disk, f"{directory}/{name}")


def _verify_readable(disk: Disk, path: str) -> Iterator[LogProblem]:
    """Check a small file by parsing all of it."""
    if path.endswith(".checkpoint"):
        yield from _verify_snapshot(disk, path)
        return
    try:
        for _ in dump_file(disk, path):
            pass
    except (NotDumpable, *DAMAGE) as error:
        yield LogProblem(path, "", str(error))


# -- one segment -------------------------------------------------------------------


def _verify_segment(
    disk: Disk, path: str, name: FileName, verified: Verified, *, is_last: bool
) -> _Segment:
    segment = _Segment(path, name.offset, is_last, next_offset=name.offset)
    file = disk.open(path, OpenMode.READ)
    try:
        _verify_batches(file, segment, lambda header: verified.batch(header.size))
    finally:
        file.close()
    stem = path.removesuffix(Kind.LOG.value)
    for kind, check in (
        (Kind.OFFSET_INDEX, _check_offset_index),
        (Kind.TIME_INDEX, _check_time_index),
        (Kind.TXN_INDEX, _check_txn_index),
    ):
        index = f"{stem}{kind.value}"
        if disk.exists(index):
            check(disk, index, segment)
        elif kind is not Kind.TXN_INDEX and segment.batches:
            segment.tell("", "is missing; it is rebuilt when the log is opened", index)
    verified.segment()
    return segment


def _verify_snapshot(disk: Disk, path: str) -> Iterator[LogProblem]:
    segment = _Segment(path, Offset(0), is_last=False)
    file = disk.open(path, OpenMode.READ)
    controls: list[bool] = []
    try:
        _verify_batches(file, segment, lambda header: controls.append(header.is_control))
    finally:
        file.close()
    if not segment.findings and not (len(controls) > 1 and controls[0] and controls[-1]):
        segment.tell("", "does not begin and end with the control batches of a snapshot")
    yield from segment.findings


def _verify_batches(file: File, segment: _Segment, seen: Callable[[BatchHeader], None]) -> None:
    end, position, newest = file.size(), 0, -1
    try:
        for whole in whole_batches(file, 0, end):
            header = whole.header
            _check_batch(whole, segment)
            newest = max(newest, header.max_timestamp)
            segment.batches[whole.position] = _Placed(header, newest)
            segment.next_offset = max(segment.next_offset, header.next_offset)
            segment.epoch = max(segment.epoch, header.leader_epoch)
            position = whole.position + header.size
            seen(header)
    except (CorruptBatch, UnsupportedMagic) as error:
        if segment.is_last and _is_zero(file, position, end):
            return
        ending = "; recovery truncates it" if segment.is_last else ""
        segment.tell(f"position {position}", f"{end - position} bytes: {error}{ending}")


def _check_batch(whole: StoredBatch, segment: _Segment) -> None:
    header, where = whole.header, f"offset {whole.header.base_offset}"
    if header.base_offset < segment.next_offset:
        segment.tell(where, f"comes after offset {segment.next_offset - 1}")
    if header.leader_epoch < segment.epoch:
        segment.tell(where, f"leader epoch {header.leader_epoch} after {segment.epoch}")
    if not is_crc_valid(whole.buffer, whole.start, header):
        segment.tell(where, "wrong CRC")
        return
    try:
        region = bytes(unpack_region(whole.buffer, whole.start, header))
        spans = walk_spans(region, header.records_count)
        deltas = spans.offset_deltas
        if spans.count and deltas[spans.count - 1] > header.last_offset_delta:
            segment.tell(where, "holds an offset beyond its last")
    except (InvalidRecord, CorruptBatch) as error:
        segment.tell(where, str(error))


def _is_zero(file: File, start: int, end: int) -> bool:
    while start < end:
        data = file.pread(min(_ZERO_CHUNK, end - start), start)
        if any(data):
            return False
        start += len(data)
    return True


# -- its indexes -------------------------------------------------------------------


def _check_offset_index(disk: Disk, path: str, segment: _Segment) -> None:
    if not _is_whole(disk, path, OffsetIndex.ENTRY.size, segment):
        return
    before = (-1, -1)
    for relative, position in OffsetIndex(disk, path, segment.base, _UNBOUNDED).entries():
        where = f"offset {segment.base + relative}"
        if (relative, position) == (0, 0) and before != (-1, -1):
            break  # preallocated space
        if relative <= before[0] or position <= before[1]:
            segment.tell(where, "entries do not increase", path)
        placed = segment.batches.get(position)
        if placed is None:
            segment.tell(where, f"no batch begins at position {position}", path)
        elif placed.header.base_offset > segment.base + relative:
            first = placed.header.base_offset
            segment.tell(where, f"the batch at position {position} begins at {first}", path)
        before = (relative, position)


def _check_time_index(disk: Disk, path: str, segment: _Segment) -> None:
    if not _is_whole(disk, path, TimeIndex.ENTRY.size, segment):
        return
    placed = {each.header.last_offset: each for each in segment.batches.values()}
    before = (-1, -1)
    for timestamp, relative in TimeIndex(disk, path, segment.base, _UNBOUNDED).entries():
        where = f"timestamp {timestamp}"
        if timestamp <= before[0] or relative < before[1]:
            segment.tell(where, "entries do not increase", path)
        batch = placed.get(Offset(segment.base + relative))
        if batch is None:
            segment.tell(where, f"no batch ends at offset {segment.base + relative}", path)
        elif batch.max_timestamp_so_far != timestamp:
            newest = batch.max_timestamp_so_far
            segment.tell(
                where, f"the largest by offset {segment.base + relative} is {newest}", path
            )
        before = (timestamp, relative)


def _check_txn_index(disk: Disk, path: str, segment: _Segment) -> None:
    markers = {
        each.header.last_offset for each in segment.batches.values() if each.header.is_control
    }
    try:
        for txn in dump_file(disk, path):
            offset = txn["last_offset"]
            if offset not in markers:
                segment.tell(f"offset {offset}", "there is no abort marker", path)
    except CorruptIndex as error:
        segment.tell("", str(error), path)


def _is_whole(disk: Disk, path: str, entry_bytes: int, segment: _Segment) -> bool:
    size = disk.size(path)
    if size % entry_bytes:
        segment.tell("", f"{size} bytes are not a whole number of entries", path)
        return False
    return True


# -- leader epochs -----------------------------------------------------------------


class _Epochs:
    """The leader-epoch checkpoint of a log, compared with its batches."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.findings: list[LogProblem] = []
        self._path = f"{directory}/{LEADER_EPOCH}"
        self._epochs: LeaderEpochs | None = None
        try:
            if disk.exists(self._path):
                self._epochs = LeaderEpochs(read_epochs(disk, directory))
        except (CorruptCheckpoint, Fault) as error:
            self.findings.append(LogProblem(self._path, "", str(error)))

    def check(self, segment: _Segment, epoch_before: LeaderEpoch) -> None:
        """Report where an epoch begins that the checkpoint does not contain."""
        if self._epochs is None:
            return
        starts = {entry.epoch: entry.start_offset for entry in self._epochs.entries}
        epoch = epoch_before
        for header, _ in segment.batches.values():
            if header.leader_epoch <= epoch:
                continue
            epoch = header.leader_epoch
            if epoch not in starts:
                where, what = f"offset {header.base_offset}", f"leader epoch {epoch} is not in it"
                segment.tell(where, what, self._path)


# -- segments that are missing, or end too early -------------------------------------


class _Chain:
    """The inventory of a log, compared with its segments."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._directory = directory
        self._inventory = read_inventory(disk, directory)
        entries = () if self._inventory is None else self._inventory.segments
        self._entries = {entry.base_offset: entry for entry in entries}
        self._has_gaps = False  # compaction has removed records

    def missing(self, disk: Disk, live: Sequence[FileName]) -> Iterator[LogProblem]:
        """Yield the segments that the log once had and that are gone, or have another length."""
        if self._inventory is None or not live:
            return
        present = [
            FoundSegment(each.offset, disk.size(f"{self._directory}/{file_name(*each)}"))
            for each in live
        ]
        start = self._inventory.log_start
        for each in find_missing(self._inventory, present, start, self._directory):
            where = f"offsets {each.start} to {each.end - 1}"
            yield LogProblem(each.path, where, each.reason)

    def check(self, disk: Disk, segment: _Segment, before: _Segment | None) -> None:
        """Report a hole before a segment, and an index of aborted transactions that changed."""
        if before is not None and before.next_offset < segment.base and not self._is_gap(before):
            where = f"offset {before.next_offset}"
            segment.tell(where, f"is missing; the next segment begins at {segment.base}")
        self._has_gaps |= _has_gaps(segment)
        entry = self._entries.get(segment.base)
        if entry is None or segment.is_last:
            return
        path = segment.path.removesuffix(Kind.LOG.value) + Kind.TXN_INDEX.value
        index = TransactionIndex(disk, path, segment.base, exists=True)
        if not index.is_as(entry.aborted_bytes, entry.aborted_crc):
            segment.tell("", "is not as it was written; it is rebuilt when the log is opened", path)

    def _is_gap(self, before: _Segment) -> bool:
        """Whether compaction explains that a segment ends before the next one begins."""
        entry = self._entries.get(before.base)
        return self._has_gaps if entry is None else entry.end_offset == before.next_offset


def _has_gaps(segment: _Segment) -> bool:
    expected: int = segment.base
    for header, _ in segment.batches.values():
        if header.base_offset > expected or header.records_count <= header.last_offset_delta:
            return True
        expected = header.next_offset
    return False
