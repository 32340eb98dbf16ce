"""Checks the history of a partition, batch by batch. Pure.

Pass every batch of the log in order to a `PartitionAudit`, as a read_uncommitted reader gets them;
it counts offsets by category and records findings.

Every offset between the log start offset and the log end offset is counted once::

    records     data that a read_committed reader receives
    aborted     data of aborted transactions
    control     markers, and control batches that brokers write
    undecided   data of open transactions
    compacted   removed by compaction
    expired     removed by retention while the audit ran
    missing     absent without an explanation

Findings:

- a batch that is damaged or whose records contradict its header; offsets or epochs that decrease
- missing offsets
- a producer sequence that is repeated, or that has a gap in a topic that is not compacted
- transactional data below the last stable offset without an end marker
"""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from ottla.client.fetched import Chunk
from ottla.formats.batch_decoder import rows_between
from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.batch import BatchHeader, batches, is_crc_valid
from ottla.protocol.records.control import ControlType, read_control_type
from ottla.protocol.records.reader import unpack_region
from ottla.protocol.records.walker import walk_spans
from ottla.protocol.types import Buffer, TopicPartition

FINDINGS_MAX: Final = 100
"""Most findings kept per partition; further ones are only counted."""
PRODUCERS_MAX: Final = 1_000_000
"""Most producers tracked at once; the least recently active one is dropped for a new one."""
_SEQUENCES: Final = 2**31


class Kind(enum.StrEnum):
    """The kind of a batch."""

    DATA = "data"
    COMMIT = "commit"
    ABORT = "abort"
    CONTROL = "control"  # another control batch: leader change, snapshot header or footer
    DAMAGED = "damaged"
    EXPIRED = "expired"  # not a batch: retention removed these offsets during the audit


class Problem(enum.StrEnum):
    """The category of a finding."""

    DAMAGED = "damaged"
    ORDER = "order"
    MISSING = "missing"
    DUPLICATE = "duplicate"
    SEQUENCE = "sequence"
    UNDECIDED = "undecided"
    ATOMICITY = "atomicity"


class BatchFact(msgspec.Struct, frozen=True):
    """One batch without its records. ``note`` describes its damage."""

    base_offset: int
    next_offset: int
    records: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    kind: Kind
    note: str = ""


class Scope(msgspec.Struct, frozen=True):
    """The audited offsets ``[start, end)``.

    All transactions below ``stable`` are decided; ``compacts``: compaction may remove records.
    """

    start: int
    end: int
    stable: int
    compacts: bool


class Finding(msgspec.Struct, frozen=True, order=True):
    """A problem at an offset."""

    topic: str
    partition: int
    offset: int
    problem: Problem
    detail: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at {self.offset}: {self.problem}: {self.detail}"


class Account(msgspec.Struct):
    """The number of offsets of a partition per category; see the module."""

    records: int = 0
    aborted: int = 0
    control: int = 0
    undecided: int = 0
    compacted: int = 0
    expired: int = 0
    missing: int = 0
    batches: int = 0
    findings: int = 0


class Transaction(msgspec.Struct, frozen=True):
    """The part of a decided transaction in this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    is_commit: bool


class _Producer(msgspec.Struct):
    epoch: int
    last_sequence: int = -1
    txn_first: int = -1  # of the open transaction
    txn_records: int = 0
    txn_epoch: int = -1


def read_facts(chunk: Chunk, start: int, end: int) -> Iterator[BatchFact]:
    """Yield a fact for each batch that begins in ``[start, end)``, after decoding it completely.

    Stops at bytes that are not a batch, because the start of the next batch is unknown then.
    """
    following = start
    try:
        for position, header in batches(chunk.data):
            if header.base_offset >= end:
                return
            following = header.next_offset
            if header.base_offset >= start:
                yield _fact(chunk.data, position, header)
    except (CorruptBatch, UnsupportedMagic) as error:
        yield damage(following, following, str(error))


def damage(base_offset: int, next_offset: int, note: str) -> BatchFact:
    """Return a fact for offsets that cannot be read."""
    return BatchFact(base_offset, next_offset, 0, -1, -1, -1, -1, False, Kind.DAMAGED, note)


def expiry(base_offset: int, next_offset: int) -> BatchFact:
    """Return a fact for offsets that retention removed."""
    return BatchFact(base_offset, next_offset, 0, -1, -1, -1, -1, False, Kind.EXPIRED)


def _fact(data: Buffer, position: int, header: BatchHeader) -> BatchFact:
    try:
        kind = _kind(data, position, header)
    except (CorruptBatch, InvalidRecord) as error:
        return damage(header.base_offset, header.next_offset, str(error))
    return BatchFact(
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        records=header.records_count,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        kind=kind,
    )


def _kind(data: Buffer, position: int, header: BatchHeader) -> Kind:
    """Decode a batch completely and return its kind. Raises CorruptBatch, InvalidRecord."""
    if not is_crc_valid(data, position, header):
        raise CorruptBatch("the CRC is wrong")
    spans = walk_spans(unpack_region(data, position, header), header.records_count)
    rows_between(spans, header.last_offset_delta, 0, header.last_offset_delta + 1)
    if not header.is_control:
        return Kind.DATA
    kind = read_control_type(data, position)
    ends = {ControlType.COMMIT: Kind.COMMIT, ControlType.ABORT: Kind.ABORT}
    return ends.get(kind, Kind.CONTROL)


class PartitionAudit:
    """Audits one partition. Call `take` for every batch, then `finish` once."""

    def __init__(self, topic: str, partition: int, scope: Scope) -> None:
        self.partition = TopicPartition(topic, partition)
        self._scope = scope
        self._next = scope.start
        self._start = scope.start  # follows the log start offset
        self._leader_epoch = -1
        self._producers: dict[int, _Producer] = {}
        self.account = Account()
        self.findings: list[Finding] = []

    def take(self, fact: BatchFact) -> list[Transaction]:
        """Process the next batch; return the transactions that it ends."""
        self._check_place(fact)
        if fact.kind is Kind.EXPIRED:
            self.account.expired += self._offsets_in(fact)
            self._next = self._start = fact.next_offset
            return []
        self.account.batches += 1
        if fact.kind is Kind.DAMAGED:
            self._report(fact.base_offset, Problem.DAMAGED, fact.note)
            self.account.missing += self._offsets_in(fact)
        elif fact.kind is Kind.DATA:
            self._take_data(fact)
        else:
            self.account.control += fact.records
            self._take_gap(fact)
        self._next = max(self._next, fact.next_offset)
        if fact.kind in (Kind.COMMIT, Kind.ABORT):
            return self._decide(fact)
        return []

    def finish(self) -> None:
        """Count open transactions as undecided, and check that the log reaches its end."""
        if self._next < self._scope.end:
            self._miss(self._next, self._scope.end)
        for producer_id, each in self._producers.items():
            if each.txn_first < 0:
                continue
            self.account.undecided += each.txn_records
            if each.txn_first < self._scope.stable:
                detail = (
                    f"producer {producer_id} has {each.txn_records} records without an end marker"
                )
                self._report(each.txn_first, Problem.UNDECIDED, detail)

    # -- offsets -----------------------------------------------------------------

    def _check_place(self, fact: BatchFact) -> None:
        if fact.base_offset > self._next:
            self._miss(self._next, fact.base_offset)
        elif fact.base_offset < self._next and fact.base_offset >= self._start:
            detail = f"a batch begins at {fact.base_offset}, expected {self._next}"
            self._report(fact.base_offset, Problem.ORDER, detail)
        if 0 <= fact.leader_epoch < self._leader_epoch:
            detail = f"leader epoch {fact.leader_epoch} after {self._leader_epoch}"
            self._report(fact.base_offset, Problem.ORDER, detail)
        self._leader_epoch = max(self._leader_epoch, fact.leader_epoch)

    def _miss(self, start: int, end: int) -> None:
        if self._scope.compacts:
            self.account.compacted += end - start
        else:
            self.account.missing += end - start
            self._report(start, Problem.MISSING, f"offsets {start} to {end - 1} are missing")

    def _take_gap(self, fact: BatchFact) -> None:
        """Count the offsets of a batch without a record; compaction may remove single records."""
        gap = self._offsets_in(fact) - fact.records
        if gap <= 0:
            return
        if self._scope.compacts:
            self.account.compacted += gap
        else:
            self.account.missing += gap
            detail = f"{gap} of the offsets up to {fact.next_offset - 1} have no record"
            self._report(fact.base_offset, Problem.MISSING, detail)

    def _offsets_in(self, fact: BatchFact) -> int:
        """Return how many offsets a batch covers, without those before the start."""
        return fact.next_offset - max(fact.base_offset, self._start)

    # -- producers ---------------------------------------------------------------

    def _take_data(self, fact: BatchFact) -> None:
        self._take_gap(fact)
        records = min(fact.records, self._offsets_in(fact))
        if fact.producer_id < 0:
            self.account.records += records
            return
        producer = self._producer(fact)
        if fact.base_sequence >= 0:
            self._check_sequence(fact, producer)
        if not fact.is_transactional:
            self.account.records += records
            return
        if producer.txn_first < 0:
            producer.txn_first, producer.txn_epoch = fact.base_offset, fact.producer_epoch
        producer.txn_records += records

    def _producer(self, fact: BatchFact) -> _Producer:
        """Return the state of the batch's producer, reset when its epoch rises."""
        producer = self._producers.get(fact.producer_id)
        if producer is None:
            if len(self._producers) >= PRODUCERS_MAX:
                self._producers.pop(next(iter(self._producers)))
            producer = self._producers[fact.producer_id] = _Producer(fact.producer_epoch)
        if fact.producer_epoch < producer.epoch:
            detail = (
                f"producer {fact.producer_id}: epoch {fact.producer_epoch} after {producer.epoch}"
            )
            self._report(fact.base_offset, Problem.ORDER, detail)
        elif fact.producer_epoch > producer.epoch:
            producer.epoch, producer.last_sequence = fact.producer_epoch, -1
        return producer

    def _check_sequence(self, fact: BatchFact, producer: _Producer) -> None:
        """Check that a sequence follows the previous one; the first one may have any value."""
        span = fact.next_offset - fact.base_offset
        last = (fact.base_sequence + span - 1) % _SEQUENCES
        if producer.last_sequence >= 0 and fact.producer_epoch == producer.epoch:
            ahead = (fact.base_sequence - producer.last_sequence - 1) % _SEQUENCES
            name = f"producer {fact.producer_id} epoch {fact.producer_epoch}"
            if ahead >= _SEQUENCES // 2:
                detail = (
                    f"{name}: sequence {fact.base_sequence} repeated after {producer.last_sequence}"
                )
                self._report(fact.base_offset, Problem.DUPLICATE, detail)
                return
            if ahead and not self._scope.compacts:
                detail = f"{name}: sequence {fact.base_sequence} follows {producer.last_sequence}"
                self._report(fact.base_offset, Problem.SEQUENCE, detail)
        producer.last_sequence = last

    def _decide(self, fact: BatchFact) -> list[Transaction]:
        """End the producer's transaction; return nothing if it has no records in this partition."""
        producer = self._producer(fact)
        if producer.txn_first < 0:
            return []
        is_commit = fact.kind is Kind.COMMIT
        if is_commit:
            self.account.records += producer.txn_records
        else:
            self.account.aborted += producer.txn_records
        decided = Transaction(fact.producer_id, producer.txn_epoch, producer.txn_first, is_commit)
        producer.txn_first, producer.txn_records = -1, 0
        return [decided]

    def _report(self, offset: int, problem: Problem, detail: str) -> None:
        self.account.findings += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(*self.partition, offset, problem, detail))
