"""A small compacted log for tests: produce, end transactions, roll, clean, inspect."""

from dataclasses import dataclass

from msgspec.structs import replace

from ottla.protocol.records.batch import BatchHeader, Compression, batches
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import NO_PRODUCER, Producer, build_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.storage.cleaner.batch_cleaner import CleanStats
from ottla.storage.cleaner.compactor import CleaningRound, CleanResult, Memory, dirty_part
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.disk import SimDisk

SECRET = bytes(range(16))
DIRECTORY = "/data/t-0"
Pair = tuple[bytes | None, bytes | None]


@dataclass
class FixedClock:
    wall: int = 1_000_000
    mono: int = 0

    def now(self) -> Millis:
        return Millis(self.wall)

    def monotonic(self) -> Millis:
        return Millis(self.mono)


CONFIG = LogConfig(is_compacted=True, is_deleted=False, delete_retention_ms=1000)


class CompactedLog:
    def __init__(self, config: LogConfig = CONFIG, seed: int = 0) -> None:
        self.disk = SimDisk(seed=seed)
        self.disk.make_dirs("/data")
        self.clock = FixedClock()
        self.config = config
        self.log = self.open(LogCheckpoint())
        self.checkpoint: Offset | None = None
        self.sequences: dict[int, int] = {}
        self.memory = Memory(24 * 1000, SECRET)
        self.stats = CleanStats()

    def open(self, checkpoint: LogCheckpoint) -> Log:
        return Log.open(self.disk, DIRECTORY, self.config, clock=self.clock, checkpoint=checkpoint)

    def reopen(self, *, is_clean: bool = False) -> None:
        """Open again from what is on disk, as after a restart."""
        self.log = self.open(LogCheckpoint(is_clean=is_clean))
        self.replicate()

    # -- writing -------------------------------------------------------------

    def put(self, *pairs: Pair, pid: int = -1, epoch: int = 0, txn: bool = False, **more) -> int:
        """Append one batch; return its first offset."""
        producer = NO_PRODUCER
        if pid >= 0:
            sequence = self.sequences.get(pid, 0)
            producer = Producer(pid, epoch, sequence)
            self.sequences[pid] = sequence + len(pairs)
        timestamp = more.pop("timestamp", self.clock.wall)
        records = [
            Record(Offset(at), Millis(timestamp + at), key, value)
            for at, (key, value) in enumerate(pairs)
        ]
        batch = build_batch(records, producer=producer, is_transactional=txn, **more)
        return self._append(batch, from_client=True)

    def end(self, pid: int, *, commit: bool, epoch: int = 0) -> int:
        marker = build_end_txn_marker(
            EndTxnMarker(commit, 0), Producer(pid, epoch), self.clock.wall
        )
        return self._append(marker, from_client=False)

    def _append(self, batch: bytearray, *, from_client: bool) -> int:
        appended = self.log.append_as_leader(
            batch, leader_epoch=LeaderEpoch(0), now=self.clock.now(), from_client=from_client
        )
        self.replicate()
        return appended.first_offset

    def replicate(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll()

    # -- cleaning ------------------------------------------------------------

    def clean(self, now: int | None = None) -> CleanResult:
        at = Millis(self.clock.wall if now is None else now)
        dirty = dirty_part(self.log, self.checkpoint, at)
        cleaning = CleaningRound(self.disk, self.log, dirty, self.memory, at)
        for _ in cleaning.run():
            pass
        self.checkpoint = cleaning.result.end_offset
        return cleaning.result

    def clean_again(self, now: int | None = None) -> CleanResult:
        """Clean everything again, as if enough were dirty."""
        self.checkpoint = None
        return self.clean(now)

    # -- inspection -------------------------------------------------------------

    def batches(self) -> list[BatchHeader]:
        found = []
        for segment in self.log.segments:
            data = segment.file.pread(segment.size, 0)
            found += [header for _, header in batches(data)]
        return found

    def records(self) -> list[Record]:
        """Return every data record, in the order of the log."""
        found: list[Record] = []
        for segment in self.log.segments:
            data = segment.file.pread(segment.size, 0)
            for position, header in batches(data):
                if not header.is_control:
                    found += read_records(data, position)
        return found

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]

    def committed(self) -> dict[bytes, bytes]:
        """What a read_committed reader of the whole log holds at the end, by key."""
        held: dict[bytes, bytes] = {}
        for record in self.read_committed():
            assert record.key is not None
            if record.value is None:
                held.pop(record.key, None)
            else:
                held[record.key] = record.value
        return held

    def read_committed(self) -> list[Record]:
        """Read as a consumer does: by slices, skipping what the index says was aborted."""
        upto = self.log.last_stable_offset
        aborted = sorted(
            self.log.collect_aborted(self.log.log_start_offset, upto),
            key=lambda txn: txn.first_offset,
        )
        open_aborts: set[int] = set()
        found: list[Record] = []
        offset = self.log.log_start_offset
        while offset < upto:
            part = self.log.read(offset, 1 << 20, upto=upto)
            if not part.length:
                break
            data = part.file.pread(part.length, part.position)
            for position, header in batches(data):
                while aborted and aborted[0].first_offset <= header.last_offset:
                    open_aborts.add(aborted.pop(0).producer_id)
                offset = header.next_offset
                if header.is_control:
                    if header.records_count and read_records(data, position)[0].key[3] == 0:
                        open_aborts.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in open_aborts):
                    found += read_records(data, position)
        return found


def compacted(**settings: object) -> CompactedLog:
    return CompactedLog(replace(CONFIG, **settings))


def only(compression: str) -> Compression:
    return Compression[compression]
