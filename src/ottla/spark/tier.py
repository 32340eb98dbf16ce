"""Reads sealed segments from their files or objects instead of from brokers, for backfills.

``tierPath`` names stores of remote segments, directories or buckets (`tiered_segments.py`), and
directories with the layout of a broker's ``log.dirs``: ``<topic>-<partition>/`` with the files of
`storage.files`. Records that are not there are fetched from the leader. The rows are the same as
those of a fetch; of files:

- The topic id must be the cluster's (``partition.metadata``), and nothing before the log start
  offset is returned, although the files may still contain it.
- A read_committed reader receives offsets up to the first transaction that was open when the last
  sealed segment ended, according to the producer snapshot of that moment. All aborted transactions
  before it are in the ``.txnindex`` files of sealed segments.
- A segment may be compacted or deleted concurrently. The reader opens its file, then reads the
  aborted transactions, then lists the directory again: if it is unchanged, the three are
  consistent, and the open file does not change. In any doubt the leader is asked instead.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import DataLost, TopicRecreated, fetch_batches
from ottla.client.fetched import Chunk, next_offset
from ottla.client.offset_spec import EARLIEST
from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, batches, read_header
from ottla.protocol.types import Offset, TopicIdPartition, TopicPartition, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.spark.options import SourceOptions, Tier, TierPlace
from ottla.spark.tiered_segments import TieredLog, chunk_of, store_for
from ottla.storage.directory.partition_metadata import CorruptPartitionMetadata, read_topic_id
from ottla.storage.log.files import Kind, LogFiles, State, parse_name
from ottla.storage.log.offset_index import OffsetIndex
from ottla.storage.log.producer_snapshot_format import CorruptSnapshot, decode
from ottla.storage.log.transaction_index import AbortedTxn, CorruptIndex, TransactionIndex
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_store import ObjectMissing, RemoteStorageFailed
from ottla.tiering.store_settings import DIRECTORY, StoreSettings

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 8 << 20
_INDEX_BYTES_MAX: Final = 2**31 - 1


class TierMissing(Exception):
    """None of the places has the partition."""


class TierUnavailable(Exception):
    """A store cannot be read, or an object in it is not what was stored."""


class Layout(NamedTuple):
    """The base offsets of a log's segments, the active one last; empty while they change."""

    bases: tuple[Offset, ...]

    @property
    def sealed_end(self) -> int:
        """The end offset of the sealed segments; 0 if there are none."""
        return self.bases[-1] if self.bases else 0

    def holding(self, offset: int) -> tuple[Offset, Offset] | None:
        """Return the base and end offset of the sealed segment that contains ``offset``."""
        at = bisect_right(self.bases, offset)
        return (self.bases[at - 1], self.bases[at]) if 0 < at < len(self.bases) else None


def layout_of(names: list[str]) -> Layout:
    """Parse the names in a directory. Empty while the cleaner replaces segments."""
    bases: list[Offset] = []
    for found in filter(None, map(parse_name, names)):
        if found.kind is Kind.LOG and found.state is State.SWAP:
            return Layout(())
        if found.kind is Kind.LOG and found.state is State.LIVE:
            bases.append(found.offset)
    return Layout(tuple(sorted(bases)))


class Sealed(Protocol):
    """Sealed segments of one partition, in files or in a store."""

    def read(self, start: int, end: int, *, committed: bool) -> Generator[Chunk, None, int]:
        """Yield the part of ``[start, end)`` that is there; return the end of that part."""
        ...


class SealedFiles(NamedTuple):
    """`Sealed` in a directory of a broker."""

    files: LogFiles

    def read(self, start: int, end: int, *, committed: bool) -> Generator[Chunk, None, int]:
        """Read as `read_sealed`."""
        return read_sealed(self.files, start, end, committed=committed)


class TierReader:
    """Reads ranges from ``places``, and the rest from the leader.

    ``is_direct``: a store that cannot be read is an error; otherwise the leader is asked instead.
    """

    def __init__(
        self,
        client: BrokerClient,
        places: Sequence[TierPlace],
        disk: Disk | None = None,
        *,
        is_direct: bool = True,
    ) -> None:
        self._client = client
        self._disk: Disk = disk or RealDisk()
        self._places = places
        self._is_direct = is_direct

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
            TierMissing: no place has the partition. TierUnavailable: a store cannot be read.
            Else as `fetch_batches`.
        """
        found = self._client.topic(partition.topic).topic_id
        if topic_id is not None and found != topic_id:
            raise TopicRecreated(partition.topic, topic_id, found)
        sealed = self._find(partition, found)
        if sealed is None:
            raise TierMissing(f"{partition} is in none of {self._names}")
        query = {partition: EARLIEST}
        log_start = self._client.list_offsets(query, committed=False)[partition]
        if start < min(log_start, end):
            raise DataLost(partition, start, log_start)
        reading = sealed.read(start, end, committed=committed)
        position = yield from self._as_far_as_possible(reading, partition, start)
        if position < end:
            yield from fetch_batches(
                self._client, partition, position, end, committed=committed, topic_id=topic_id
            )

    def _as_far_as_possible(
        self, reading: Generator[Chunk, None, int], partition: TopicPartition, start: int
    ) -> Generator[Chunk, None, int]:
        """Yield chunks until the end or a failure of the store; return the offset after them."""
        position = start
        while True:
            try:
                chunk = next(reading)
            except StopIteration as done:
                end: int = done.value
                return end
            except ObjectMissing:
                return position  # deleted meanwhile; the leader knows whether it is still needed
            except RemoteStorageFailed as error:
                self._fail(str(partition), error)
                return position
            position = next_offset(chunk.data) or position
            yield chunk

    def _fail(self, what: str, error: RemoteStorageFailed) -> None:
        text = f"{what} cannot be read from {self._names}: {error}"
        if self._is_direct:
            raise TierUnavailable(f"{text}. {_advice(text)}") from error
        log.warning("%s; it is fetched from the leader instead", text)

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether a place has the partition of the current topic id."""
        return self._find(partition, self._client.topic(partition.topic).topic_id) is not None

    def _find(self, partition: TopicPartition, topic_id: Uuid) -> Sealed | None:
        for place in self._places:
            try:
                found = self._in_directory(place, partition, topic_id) or self._in_store(
                    place, partition, topic_id
                )
            except RemoteStorageFailed as error:
                self._fail(str(partition), error)
                continue
            if found is not None:
                return found
        return None

    def _in_directory(
        self, place: TierPlace, partition: TopicPartition, topic_id: Uuid
    ) -> Sealed | None:
        """Return the partition's directory below a broker's ``log.dirs``."""
        if not isinstance(place, str):
            return None
        directory = f"{place.rstrip('/')}/{partition}"
        try:
            is_found = read_topic_id(self._disk, directory) == topic_id
        except (CorruptPartitionMetadata, OSError):
            return None
        return SealedFiles(LogFiles(self._disk, directory)) if is_found else None

    def _in_store(
        self, place: TierPlace, partition: TopicPartition, topic_id: Uuid
    ) -> Sealed | None:
        """Return the partition's remote segments."""
        at = TopicIdPartition(topic_id, partition.partition)
        if isinstance(place, str):
            try:
                self._disk.list(f"{place.rstrip('/')}/{uuid_text(topic_id)}/{at.partition}")
            except OSError:
                return None
            place = StoreSettings(DIRECTORY, place)
        store = store_for(place)
        listed = store.list(at)
        return TieredLog(store, listed, partial(self._is_own, partition)) if listed else None

    def _is_own(self, partition: TopicPartition, segment: SegmentMetadata) -> bool:
        """Say whether the leader's log has what a segment has, by its last leader epoch."""
        epoch = segment.epochs[-1].epoch
        found, end = self._client.epoch_end(partition, epoch)
        return found == epoch and segment.end_offset < end

    @property
    def _names(self) -> str:
        names = [each if isinstance(each, str) else each.name for each in self._places]
        return ", ".join(names) or "no directories"


def _advice(text: str) -> str:
    """Return what to do about a store that cannot be read."""
    # Without keys, the addresses are asked at which a machine in the cloud finds its role.
    if "/latest/api/token" in text or "/latest/meta-data" in text or "credential" in text.lower():
        return (
            "No credentials were found: set rsm.config.access.key.id and"
            " rsm.config.secret.access.key, or give Spark's executors AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY; tier=never reads through the brokers"
        )
    if "access denied" in text:
        return (
            "Check the credentials (rsm.config.access.key.id, or the role of Spark's executors)"
            " and their right to list and get objects; tier=never reads through the brokers"
        )
    return (
        "Check tierPath and rsm.config.endpoint, and that Spark's executors can reach it;"
        " tier=never reads through the brokers"
    )


def batch_reader(
    client: BrokerClient, options: SourceOptions, partition: TopicPartition
) -> Callable[..., Iterator[Chunk]]:
    """Return the function that reads a partition, from files, a store or its leader."""
    if options.tier_places and options.tier is not Tier.NEVER:
        is_direct = options.tier is Tier.DIRECT
        tier = TierReader(client, options.tier_places, is_direct=is_direct)
        if is_direct or tier.holds(partition):
            return tier.batches
    return partial(fetch_batches, client)


def read_sealed(
    files: LogFiles, start: int, end: int, *, committed: bool
) -> Generator[Chunk, None, int]:
    """Yield the part of ``[start, end)`` in sealed segments; return the end offset of that part.

    Ends early if the files alone are not sufficient.
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
    """A sealed segment: its open file, its offsets, and its aborted transactions."""

    file: File
    base: Offset
    end: Offset  # of what may be read
    segment_end: Offset
    aborted: list[AbortedTxn]


def _open(files: LogFiles, position: int, end: int, committed: bool) -> _Opened | None:
    """Open the segment that contains ``position``; None if the leader must be asked."""
    before = _look(files)
    place = before.holding(position)
    if place is None:
        return None
    base, segment_end = place
    following = segment_end
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
    return _Opened(file, base, following, segment_end, aborted)


def _look(files: LogFiles) -> Layout:
    try:
        return layout_of(files.disk.list(files.directory))
    except FileNotFoundError:
        return Layout(())


def _decided_end(files: LogFiles, layout: Layout) -> int:
    """Return the last stable offset at the start of the active segment; 0 if unknown."""
    sealed_end = layout.sealed_end
    try:
        snapshot = files.disk.read(files.path(Offset(sealed_end), Kind.SNAPSHOT))
        producers = decode(snapshot)
    except (CorruptSnapshot, FileNotFoundError):
        return 0
    still_open = [each.txn_first_offset for each in producers if each.txn_first_offset >= 0]
    return min([sealed_end, *still_open])


def _aborted(files: LogFiles, layout: Layout, start: int, upto: int) -> list[AbortedTxn]:
    """Return the aborted transactions that overlap ``[start, upto)``. Raises `CorruptIndex`."""
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
        CorruptBatch, UnsupportedMagic: bytes that are not a batch.
    """
    file, size = opened.file, opened.file.size()
    upto = min(end, opened.end)
    at, expected = _position_of(files, opened, start), opened.base
    while at < size:
        data = _read_whole(file, at, size)
        length = 0
        for position, header in batches(data):
            _check_order(opened, header, expected)
            expected = header.next_offset
            if header.base_offset >= upto:
                size = 0  # the rest is not requested
                break
            length = position + header.size
        if length and at + length < size:  # the batch after these says whether the last one fits
            following = read_header(file.pread(HEADER_BYTES, at + length))
            _check_order(opened, following, expected)
        if length:
            yield chunk_of(data[:length], opened.aborted)
        at += length


def _check_order(opened: _Opened, header: BatchHeader, expected: Offset) -> None:
    """Check what a CRC does not cover: compaction leaves gaps, but batches never overlap.

    Raises:
        CorruptBatch
    """
    if not expected <= header.base_offset <= header.last_offset < opened.segment_end:
        raise CorruptBatch(
            f"{opened.file.path}: a batch has offsets {header.base_offset} to {header.last_offset},"
            f" outside of {expected} to {opened.segment_end}"
        )


def _position_of(files: LogFiles, opened: _Opened, offset: int) -> int:
    """Return a file position at or before ``offset``; a wrong index entry is ignored."""
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
    """Read a chunk with at least one whole batch."""
    data = file.pread(min(CHUNK_BYTES, size - at), at)
    header = read_header(data)
    if header.size > len(data):
        if header.size > size - at:
            raise CorruptBatch(f"{file.path}: the batch at position {at} is incomplete")
        data = file.pread(header.size, at)
    return memoryview(data)
