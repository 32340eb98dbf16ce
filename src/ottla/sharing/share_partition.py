"""One partition led here as one group shares it: its window over the log. Synchronous.

A read begins at the first available record, and acquires what it finds in the same step, so that no
two fetches get the same record.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.config.value_rules import duration_ms
from ottla.protocol.faults import CorruptBatch, NotLeader, OffsetOutOfRange, UnsupportedMagic
from ottla.protocol.records.batch import BatchHeader, batches, is_crc_valid
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.types import Buffer, Millis, Offset
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import Isolation, ReadRequest, ReadResult
from ottla.runtime.ports import File
from ottla.sharing.acquisition import Acquire, Acquired, Acquisition, Batch, DeadRecords
from ottla.sharing.ports import ShareGroupConfig, ShareKey
from ottla.storage.log.read import RemoteRecords
from ottla.storage.log.transaction_index import AbortedTxn

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class AcquiredBatches(NamedTuple):
    """Batches, and which of their records the member has acquired."""

    records: bytes
    acquired: list[Acquired]


class DeadRecordsRead(NamedTuple):
    """Records, and the offset up to which the log was searched for them."""

    records: list[Record]
    until: Offset


class RemotePart(NamedTuple):
    """Batches from remote storage that were read from ``offset`` on."""

    offset: Offset
    records: RemoteRecords


class SharePartition:
    """The window of one group over one partition, during one leadership."""

    def __init__(
        self, key: ShareKey, partition: Partition, acquisition: Acquisition, state_epoch: int
    ) -> None:
        self.key = key
        self.partition = partition
        self.acquisition = acquisition
        self.state_epoch = state_epoch
        self.leader_epoch = partition.leader_epoch

    @property
    def is_current(self) -> bool:
        """Whether this node still leads the partition in the same epoch."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    def fetch(
        self,
        want: Acquire,
        terms: ShareGroupConfig,
        bytes_max: int,
        remote: RemotePart | None = None,
    ) -> AcquiredBatches | None:
        """Acquire available records for a member; None if there are none.

        ``remote`` is what was read from remote storage; it counts if it begins where the next
        available record is. Raises what `Partition.read` raises.
        """
        acquisition = self.acquisition
        acquisition.move_start(self.partition.log.log_start_offset)
        if not acquisition.may_acquire():
            return None
        offset = acquisition.next_offset()
        if remote is not None and remote.offset == offset:
            data, aborted = remote.records
        else:
            found = self._read(offset, terms, bytes_max)
            if found is None:
                return None
            file: File = found.slice.file
            data, aborted = file.pread(found.slice.length, found.slice.position), found.aborted
        read = self._sound(data, offset)
        spans = [Batch(header.base_offset, header.last_offset) for _, header in read]
        acquired = acquisition.acquire(want, offset, spans)
        if aborted:
            acquired = self._without_aborted(acquired, [h for _, h in read], aborted)
        return AcquiredBatches(_covering(data, read, acquired), acquired) if acquired else None

    def read_dead(self, dead: Sequence[DeadRecords], bytes_max: int) -> DeadRecordsRead:
        """Return records for the dead-letter topic, as many as one read returns.

        Raises what `Partition.read` raises, and `NotLeader` while a new leader's high watermark is
        still behind the records. Records that are no longer in the log are returned without key and
        value, those which compaction removed are not.
        """
        log, first = self.partition.log, dead[0].first
        try:
            found = self.partition.read(ReadRequest(first, bytes_max))
        except OffsetOutOfRange:
            return _gone(dead, log.log_start_offset)
        is_behind = log.high_watermark < log.log_end_offset
        if not found.slice.length and is_behind and first < log.log_end_offset:
            raise NotLeader(f"{self.partition}: offset {first} is not readable yet")
        file: File = found.slice.file
        return self.dead_in(file.pread(found.slice.length, found.slice.position), dead)

    def dead_in(self, data: Buffer, dead: Sequence[DeadRecords]) -> DeadRecordsRead:
        """Return the records for the dead-letter topic in ``data``, read from the first on."""
        first, last = dead[0].first, dead[-1].last
        records: list[Record] = []
        until = first - 1
        for position, header in self._sound(data, first) if data else ():
            until = header.last_offset
            if not header.attributes & _CONTROL:
                records += [each for each in read_records(data, position) if each.offset >= first]
        return DeadRecordsRead(records, Offset(min(until, last) if until >= first else last))

    def _sound(self, data: Buffer, offset: Offset) -> list[tuple[int, BatchHeader]]:
        """Return the whole batches up to the first damaged one, which is checked at once.

        Raises:
            CorruptBatch, ReplicaDamaged: the first one is damaged.
        """
        sound: list[tuple[int, BatchHeader]] = []
        try:
            for position, header in batches(data):
                if not is_crc_valid(data, position, header):
                    raise CorruptBatch(f"batch at offset {header.base_offset}: wrong CRC")
                sound.append((position, header))
            if not sound:
                raise CorruptBatch(f"no whole batch at offset {offset}")
        except (CorruptBatch, UnsupportedMagic) as fault:
            refusal = self.partition.damaged(sound[-1][1].next_offset if sound else offset, fault)
            if not sound:
                raise refusal from fault
        return sound

    def _read(self, offset: Offset, terms: ShareGroupConfig, bytes_max: int) -> ReadResult | None:
        committed = terms.is_read_committed
        isolation = Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK
        try:
            want = ReadRequest(offset, bytes_max, isolation=isolation)
            found = self.partition.read(want)
        except OffsetOutOfRange:
            return None  # beyond the end: the log was truncated; there is nothing yet
        return found if found.slice.length else None

    def _without_aborted(
        self, acquired: list[Acquired], read: list[BatchHeader], aborted: list[AbortedTxn]
    ) -> list[Acquired]:
        """Archive records of aborted transactions, and leave them out."""
        left = acquired
        for header in read:
            if _is_aborted(header, aborted):
                self.acquisition.archive(header.base_offset, header.last_offset)
                left = [piece for each in left for piece in _minus(each, header)]
        return left


def start_for(partition: Partition, terms: ShareGroupConfig, now: Millis) -> Offset:
    """Return the start offset for a group that has never read this partition."""
    committed = terms.is_read_committed
    end = partition.readable_end(Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK)
    if terms.reset == "earliest":
        return partition.log.log_start_offset
    word, _, text = terms.reset.partition(":")
    back_ms = duration_ms(text) if word == "by_duration" else None
    if back_ms is None:
        return end
    found = partition.find_timestamp(Millis(now - back_ms))
    return end if found is None else Offset(min(found.offset, end))


def _is_aborted(header: BatchHeader, aborted: list[AbortedTxn]) -> bool:
    return bool(header.attributes & _TRANSACTIONAL) and any(
        txn.producer_id == header.producer_id
        and txn.first_offset <= header.base_offset <= txn.last_offset
        for txn in aborted
    )


def _minus(acquired: Acquired, header: BatchHeader) -> list[Acquired]:
    """Return what is left of an acquired range without a batch."""
    left = acquired._replace(last=Offset(min(acquired.last, header.base_offset - 1)))
    right = acquired._replace(first=Offset(max(acquired.first, header.last_offset + 1)))
    return [each for each in (left, right) if each.first <= each.last]


def _covering(data: Buffer, read: list[tuple[int, BatchHeader]], acquired: list[Acquired]) -> bytes:
    """Return the batches from the first to the last with acquired records."""
    if not acquired:
        return b""
    first, last = acquired[0].first, acquired[-1].last
    inside = [
        (position, position + header.size)
        for position, header in read
        if header.last_offset >= first and header.base_offset <= last
    ]
    return bytes(data[inside[0][0] : inside[-1][1]]) if inside else b""


def _gone(dead: Sequence[DeadRecords], log_start: Offset) -> DeadRecordsRead:
    """Return records that were deleted with the start of their log, as far as they are known."""
    end = min(log_start, dead[-1].last + 1)
    records = [
        Record(Offset(offset), Millis(0), None, None, ())
        for run in dead
        for offset in range(run.first, min(run.last + 1, end))
    ]
    return DeadRecordsRead(records, Offset(end - 1) if records else dead[-1].last)
