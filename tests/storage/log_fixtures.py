"""Fixtures of log tests: a manual clock, batches to append, functions to inspect a log."""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.protocol.records.batch import BatchHeader, batches
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset
from ottla.runtime.ports import Disk
from ottla.storage.log.batch_checks import Appended
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimDisk

DIRECTORY = "/data/orders-0"
EPOCH = 1
NOW = 1_700_000_000_000
# About four batches of one record a segment, an index entry for every second batch.
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


@dataclass
class HandClock:
    """A clock that the test advances."""

    wall: int = NOW
    since: int = 0

    def now(self) -> Millis:
        return Millis(self.wall)

    def monotonic(self) -> Millis:
        return Millis(self.since)

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.since += ms


def open_log(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    clock: HandClock | None = None,
    checkpoint: LogCheckpoint | None = None,
    directory: str = DIRECTORY,
) -> Log:
    return Log.open(
        disk,
        directory,
        config,
        clock=clock or HandClock(),
        checkpoint=checkpoint or LogCheckpoint(),
    )


def reopen(disk: SimDisk, config: LogConfig = SMALL, **checkpoint) -> Log:
    """Open the log again after a crash or a clean close; unclean by default."""
    return open_log(disk, config, checkpoint=LogCheckpoint(**checkpoint))


def batch_of(*values: bytes, timestamp: int = NOW, base_offset: int = 0, **fields) -> bytearray:
    records = [
        Record(Offset(base_offset + at), Millis(timestamp), b"k", value)
        for at, value in enumerate(values)
    ]
    return build_batch(records, base_offset=base_offset, **fields)


def append(
    log: Log, *values: bytes, timestamp: int = NOW, epoch: int = EPOCH, **fields
) -> Appended:
    batch = batch_of(*values, timestamp=timestamp, **fields)
    return log.append_as_leader(batch, leader_epoch=epoch, now=timestamp)


def replicate(log: Log, base_offset: int, *values: bytes, epoch: int = EPOCH, **fields):
    batch = batch_of(*values, base_offset=base_offset, leader_epoch=epoch, **fields)
    return log.append_at(bytes(batch), now=NOW)


def append_in_txn(log: Log, producer: int, sequence: int, *values: bytes) -> Appended:
    return append(log, *values, producer=Producer(producer, 0, sequence), is_transactional=True)


def end_txn(log: Log, producer: int, *, commit: bool) -> Appended:
    marker = build_end_txn_marker(EndTxnMarker(commit, 0), Producer(producer, 0), NOW)
    return log.append_as_leader(marker, leader_epoch=EPOCH, now=NOW, from_client=False)


def fill(log: Log, count: int, *, start: int = 0, timestamp_step: int = 0) -> list[bytes]:
    """Append ``count`` batches of one record and return their values."""
    values = [b"value-%06d" % at for at in range(start, start + count)]
    for at, value in enumerate(values):
        append(log, value, timestamp=NOW + at * timestamp_step)
    return values


def raw_batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch in the segments, whatever the log start; checked for ascending offsets."""
    found = []
    expected = 0
    for segment in log.segments:
        data = segment.file.pread(segment.size, 0)
        for position, header in batches(data):
            assert header.base_offset >= expected, (header.base_offset, expected)
            expected = header.next_offset
            found.append((header, data[position : position + header.size]))
        assert sum(h.size for h, _ in found) >= segment.size
    return found


def contents(log: Log) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record, read as a consumer would, batch by batch."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1, upto=log.log_end_offset)
        if not part.length:
            break
        data = part.file.pread(part.length, part.position)
        header = next(batches(data))[1]
        found += [(r.offset, r.value) for r in read_records(data) if r.offset >= offset]
        offset = header.next_offset
    return found


def values(log: Log) -> list[bytes | None]:
    return [value for _, value in contents(log)]


def names(disk: Disk, directory: str = DIRECTORY) -> list[str]:
    return disk.list(directory)


def segment_bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def is_prefix(part: Sequence, whole: Sequence) -> bool:
    return list(part) == list(whole[: len(part)])
