"""Sealed segments read where they lie, past the brokers: backfills without a Fetch request.

``tierPath`` names directories laid out as a broker's ``log.dirs``: ``<topic>-<partition>/`` with
the files of `storage.files`. Sealed segments are read here; what is in the active one comes from
the leader. The rows are those a fetch would bring, because the same files say so:

- The topic is the one that the cluster has (``partition.metadata``), and nothing before its log's
  start is shown, although the files may still hold it.
- A reader of committed records is shown what was decided when the last sealed segment ended: up to
  the first transaction that the producer snapshot of that moment has open. Which transactions were
  aborted stands in the ``.txnindex`` files of sealed segments, all of them by then.
- A segment may be compacted or deleted under us. Its file is opened first, then what is aborted is
  read, then the directory is looked at again: unchanged, the three belong together, and the open
  file stays what it is. In any doubt the leader is asked, who is always right.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.pipeline.broker import EARLIEST, BrokerClient
from ottla.pipeline.decode import Chunk
from ottla.pipeline.fetch import DataLost, TopicRecreated, fetch_batches
from ottla.pipeline.options import SourceOptions, Tier
from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, batches, read_header
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.storage.files import Kind, LogFiles, State, parse_name
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.partition_metadata import CorruptPartitionMetadata, read_topic_id
from ottla.storage.producer_snapshot_format import CorruptSnapshot, decode
from ottla.storage.transaction_index import AbortedTxn, CorruptIndex, TransactionIndex

CHUNK_BYTES: Final = 8 << 20
_INDEX_BYTES_MAX: Final = 2**31 - 1


class TierMissing(Exception):
    """None of the directories named holds the partition of this topic."""


class Layout(NamedTuple):
    """The segments of a log by their first offsets, the active one last; none while they change."""

    bases: tuple[Offset, ...]

    @property
    def sealed_end(self) -> int:
        """The offset where sealed segments end; 0 where there is none."""
        return self.bases[-1] if self.bases else 0

    def holding(self, offset: int) -> tuple[Offset, Offset] | None:
        """Return first offset and end of the sealed segment that would hold ``offset``."""
        at = bisect_right(self.bases, offset)
        return (self.bases[at - 1], self.bases[at]) if 0 < at < len(self.bases) else None


def layout_of(names: list[str]) -> Layout:
    """Read a directory's names. While the cleaner puts segments in place nothing counts."""
    bases: list[Offset] = []
    for found in filter(None, map(parse_name, names)):
        if found.kind is Kind.LOG and found.state is State.SWAP:
            return Layout(())
        if found.kind is Kind.LOG and found.state is State.LIVE:
            bases.append(found.offset)
    return Layout(tuple(sorted(bases)))


class TierReader:
    """Reads ranges of partitions from ``paths`` (separated by commas) as far as they reach."""

    def __init__(self, client: BrokerClient, paths: str, disk: Disk | None = None) -> None:
        self._client = client
        self._disk: Disk = disk or RealDisk()
        self._paths = [path.strip().rstrip("/") for path in paths.split(",") if path.strip()]

    def batches(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
        topic_id: Uuid | None = None,
    ) -> Iterator[Chunk]:
        """Yield the batches of ``[start, end)`` as `fetch_batches` does.

        Raises:
            TierMissing: no directory holds the partition. Else as `fetch_batches`.
        """
        found = self._client.topic(partition.topic).topic_id
        if topic_id is not None and found != topic_id:
            raise TopicRecreated(partition.topic, topic_id, found)
        files = LogFiles(self._disk, self._directory(partition, found))
        asked = {partition: EARLIEST}
        log_start = self._client.list_offsets(asked, committed=False)[partition]
        if start < min(log_start, end):
            raise DataLost(partition, start, log_start)
        position = yield from read_sealed(files, start, end, committed=committed)
        if position < end:
            yield from fetch_batches(
                self._client, partition, position, end, committed=committed, topic_id=topic_id
            )

    def holds(self, partition: TopicPartition) -> bool:
        """Say whether a directory holds the partition of the topic as it is now."""
        try:
            self._directory(partition, self._client.topic(partition.topic).topic_id)
        except TierMissing:
            return False
        return True

    def _directory(self, partition: TopicPartition, topic_id: Uuid) -> str:
        for path in self._paths:
            directory = f"{path}/{partition}"
            try:
                if read_topic_id(self._disk, directory) == topic_id:
                    return directory
            except (CorruptPartitionMetadata, OSError):
                continue
        raise TierMissing(f"{partition} is in none of {', '.join(self._paths) or 'no directories'}")


def batch_reader(
    client: BrokerClient, options: SourceOptions, partition: TopicPartition
) -> Callable[..., Iterator[Chunk]]:
    """Return what reads a partition: its files where the options say so, else its leader."""
    if options.tier_path is not None and options.tier is not Tier.NEVER:
        tier = TierReader(client, options.tier_path)
        if options.tier is Tier.DIRECT or tier.holds(partition):
            return tier.batches
    return partial(fetch_batches, client)


def read_sealed(
    files: LogFiles, start: int, end: int, *, committed: bool
) -> Generator[Chunk, None, int]:
    """Yield what sealed segments hold of ``[start, end)``; return the offset up to where.

    Ends early wherever the files alone do not say enough.
    """
    position = start
    while position < end:
        opened = _open(files, position, end, committed)
        if opened is None:
            break
        try:
            yield from _chunks(files, opened, position, end)
        finally:
            opened.file.close()
        position = min(opened.end, end)
    return position


class _Opened(NamedTuple):
    """A sealed segment: its open file, its offsets, and what was aborted in there."""

    file: File
    base: Offset
    end: Offset
    aborted: list[AbortedTxn]


def _open(files: LogFiles, position: int, end: int, committed: bool) -> _Opened | None:
    """Open the segment that holds ``position``; None where the leader must be asked."""
    before = _look(files)
    place = before.holding(position)
    if place is None:
        return None
    base, following = place
    if committed:
        following = Offset(min(following, _decided_end(files, before)))
    if position >= following:
        return None
    try:
        file = files.disk.open(files.path(base, Kind.LOG), OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        aborted = _aborted(files, before, position, min(following, end)) if committed else []
        is_same = _look(files) == before and files.disk.size(file.path) == file.size()
    except (CorruptIndex, FileNotFoundError):
        is_same, aborted = False, []
    if not is_same:
        file.close()
        return None
    return _Opened(file, base, following, aborted)


def _look(files: LogFiles) -> Layout:
    try:
        return layout_of(files.disk.list(files.directory))
    except FileNotFoundError:
        return Layout(())


def _decided_end(files: LogFiles, layout: Layout) -> int:
    """Return up to where all was decided when the active segment began; 0 where nobody knows."""
    sealed_end = layout.sealed_end
    try:
        snapshot = files.disk.read(files.path(Offset(sealed_end), Kind.SNAPSHOT))
        producers = decode(snapshot)
    except (CorruptSnapshot, FileNotFoundError):
        return 0
    still_open = [each.txn_first_offset for each in producers if each.txn_first_offset >= 0]
    return min([sealed_end, *still_open])


def _aborted(files: LogFiles, layout: Layout, start: int, upto: int) -> list[AbortedTxn]:
    """Return the aborted transactions that touch ``[start, upto)``. Raises `CorruptIndex`."""
    found: list[AbortedTxn] = []
    first = bisect_right(layout.bases, start) - 1
    for base in layout.bases[first:-1]:
        path = files.path(base, Kind.TXN_INDEX)
        index = TransactionIndex(files.disk, path, base, exists=files.disk.exists(path))
        some, is_all = index.collect(Offset(start), Offset(upto))
        found += some
        if is_all:
            break
    return found


def _chunks(files: LogFiles, opened: _Opened, start: int, end: int) -> Iterator[Chunk]:
    """Yield the batches of one segment from ``start`` on, up to its end or ``end``.

    Raises:
        CorruptBatch, UnsupportedMagic: bytes that are no batch.
    """
    file, size = opened.file, opened.file.size()
    upto = min(end, opened.end)
    at = _position_of(files, opened, start)
    while at < size:
        data = _read_whole(file, at, size)
        length = 0
        for position, header in batches(data):
            if header.base_offset >= upto:
                size = 0  # nothing behind it is asked for
                break
            length = position + header.size
        if length:
            yield _chunk(data[:length], opened.aborted)
        at += length


def _position_of(files: LogFiles, opened: _Opened, offset: int) -> int:
    """Return where to begin looking for ``offset``; an index that misleads is not believed."""
    index = OffsetIndex(
        files.disk, files.path(opened.base, Kind.OFFSET_INDEX), opened.base, _INDEX_BYTES_MAX
    )
    try:
        _, position = index.lookup(Offset(offset))
        header = read_header(opened.file.pread(HEADER_BYTES, position))
    except (FileNotFoundError, CorruptBatch, UnsupportedMagic):
        return 0
    return position if header.base_offset <= offset else 0


def _read_whole(file: File, at: int, size: int) -> memoryview:
    """Read a chunk that holds one whole batch at least."""
    data = file.pread(min(CHUNK_BYTES, size - at), at)
    header = read_header(data)
    if header.size > len(data):
        if header.size > size - at:
            raise CorruptBatch(f"{file.path}: the batch at {at} runs over the end")
        data = file.pread(header.size, at)
    return memoryview(data)


def _chunk(data: memoryview, aborted: list[AbortedTxn]) -> Chunk:
    """Give a chunk those transactions whose marker is not before it: they are over otherwise."""
    first = read_header(data).base_offset
    return Chunk(
        data,
        tuple(
            (each.producer_id, each.first_offset) for each in aborted if each.last_offset >= first
        ),
    )
