"""The partition log of `storage` as a store under simulated faults.

One record per batch, so a value's index is its offset. The recovery point is kept in a checkpoint
beside the log, as in a log directory, so that recovery skips what is known to be durable.
"""

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Offset, TopicPartition
from ottla.runtime.ports import Committer
from ottla.storage.directory.checkpoints import read_offsets, write_offsets
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from simulation.simulation import Ports

DIRECTORY = "/data"
CHECKPOINT = f"{DIRECTORY}/recovery-point-offset-checkpoint"
PARTITION = TopicPartition("events", 0)
# Small, so that within seconds segments roll, indexes fill up and epochs are truncated.
CONFIG = LogConfig(segment_bytes=4096, segment_index_bytes=96, index_interval_bytes=200)
# Commits between two checkpoints; a broker checkpoints by time.
COMMITS_PER_CHECKPOINT = 20


class LogStore:
    """`Store` over `ottla.storage.log.log`."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._committer: Committer = ports.committer(DIRECTORY)
        self._commits = 0
        self._epoch = LeaderEpoch(0)
        self._log: Log

    def recover(self) -> list[bytes]:
        """Open the log after a crash or stop, and read all of it."""
        directory = f"{DIRECTORY}/{PARTITION.topic}-{PARTITION.partition}"
        self._ports.disk.make_dirs(directory)
        points = read_offsets(self._ports.disk, CHECKPOINT)
        checkpoint = LogCheckpoint(recovery_point=points.get(PARTITION, Offset(0)))
        self._log = Log.open(
            self._ports.disk,
            directory,
            CONFIG,
            clock=self._ports.clock,
            checkpoint=checkpoint,
            random=self._ports.random,
        )
        self._log.flush()
        latest = self._log.epochs.latest_epoch
        self._epoch = LeaderEpoch(0 if latest is None else latest + 1)
        self._log.start_epoch(self._epoch)
        return [self._value_at(Offset(place)) for place in range(self._log.log_end_offset)]

    def _value_at(self, offset: Offset) -> bytes:
        """Read one value through the index, as a fetch would."""
        part = self._log.read(offset, 1 << 20, upto=self._log.log_end_offset)
        data = part.file.pread(part.length, part.position)
        header = read_header(data)
        records = read_records(data[: header.size])
        if header.base_offset != offset or len(records) != 1 or records[0].value is None:
            raise CorruptBatch(f"offset {offset} reads as {header}")
        return records[0].value

    def append(self, value: bytes) -> int:
        """Append one batch of one record as the leader."""
        now = self._ports.clock.now()
        batch = build_batch([Record(Offset(0), now, None, value)])
        return self._log.append_as_leader(batch, leader_epoch=self._epoch, now=now).first_offset

    async def commit(self) -> None:
        """Sync everything appended; from time to time checkpoint the recovery point."""
        plan = self._log.flush_plan()
        await self._committer.commit(plan.files)
        self._log.flushed(plan)
        self._commits += 1
        if self._commits % COMMITS_PER_CHECKPOINT == 0:
            write_offsets(self._ports.disk, CHECKPOINT, {PARTITION: self._log.recovery_point})
