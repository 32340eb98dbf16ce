"""Applies the leader's responses to a follower's log."""

import logging

from ottla.protocol.faults import UnexpectedAppendOffset
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset
from ottla.replication.fetching.follower_rules import (
    DivergingEpoch,
    Range,
    decide_cut,
    decide_reset,
)
from ottla.replication.host import Host
from ottla.replication.maintenance.directory_work import DirectoryGuard
from ottla.replication.partition import Partition
from ottla.storage.log.log import TierHistory
from ottla.storage.log.log_maintenance import is_start_allowed

log = logging.getLogger(__name__)


class Follower:
    """A partition during one leader epoch. Disk failures take its directory offline.

    `is_current` is false once the image has moved on; then nothing here may be called.

    A leader whose log start was not after ours once in its leader epoch moves it by retention
    and DeleteRecords only. One that begins with a later start may have lost its files
    (ADR 0099).
    """

    __slots__ = (
        "_host",
        "_is_start_trusted",
        "bytes_wanted",
        "delayed_until",
        "epoch",
        "partition",
    )

    def __init__(self, host: Host, partition: Partition) -> None:
        self._host = host
        self.partition = partition
        self.epoch: LeaderEpoch = partition.leader_epoch
        self.delayed_until = Millis(0)
        self.bytes_wanted = 0  # for the next fetch; ignored below the usual number
        self._is_start_trusted = False

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows in this epoch."""
        partition = self.partition
        return (
            partition.leader_epoch == self.epoch
            and not partition.is_leader
            and partition.offline is None
            and not partition.is_closed
        )

    def append(self, data: Buffer, now: Millis) -> int:
        """Append the leader's batches; return the number of bytes.

        Raises:
            CorruptBatch, UnsupportedMagic, UnexpectedAppendOffset: nothing was written.
            StorageFailed: the directory is offline now.
        """
        replica = self.partition.log
        with DirectoryGuard(self._host, self.partition.directory):
            try:
                replica.append_at(data, now=now)
            except UnexpectedAppendOffset:
                if not self._may_begin_earlier(data):
                    raise
                # The leader's log starts inside this batch, so ours starts a little earlier.
                self._begin_at(read_header(data).base_offset)
                replica.append_at(data, now=now)
        self.partition.flush_if_due()
        self._host.events.replicated_in(self.partition.topic, len(data))
        return len(data)

    def _may_begin_earlier(self, data: Buffer) -> bool:
        """Whether the log is empty and its start lies inside the first batch."""
        replica, first = self.partition.log, read_header(data)
        is_empty = replica.log_start_offset == replica.log_end_offset
        return is_empty and first.base_offset < replica.log_end_offset <= first.last_offset

    def learn(self, high_watermark: Offset, log_start: Offset) -> None:
        """Update the high watermark and log start from the leader's.

        A leader that does not know the high watermark yet never lowers it: what was replicated
        once stays replicated. Wakes the readers of this replica.
        """
        partition, replica = self.partition, self.partition.log
        before = replica.high_watermark, replica.log_start_offset
        with DirectoryGuard(self._host, partition.directory):
            if high_watermark > replica.high_watermark:
                replica.set_high_watermark(high_watermark)
            if replica.log_start_offset < log_start <= replica.high_watermark:
                keep_ms = self._keep_ms(log_start)
                replica.advance_log_start(log_start)
                if keep_ms:
                    replica.keep_segments(keep_ms)
        self._is_start_trusted |= 0 <= log_start <= replica.log_start_offset
        if (replica.high_watermark, replica.log_start_offset) != before:
            partition.wake_readers()

    def _keep_ms(self, log_start: Offset) -> int:
        """Decide how long to keep what precedes the leader's later log start; 0 to delete it."""
        replica, keep_ms = self.partition.log, self._host.unexplained_deletion_delay_ms
        if self._is_start_trusted or not keep_ms:
            return 0
        if is_start_allowed(replica, log_start, self._host.clock.expiry()):
            return 0
        log.warning("log start of the leader is not explained: keeping what precedes it "
                    "partition=%s leader=%d log_start=%d leader_log_start=%d keep_ms=%d "
                    "hint=if records were not deleted on purpose, see docs/recovery.md",
                    self.partition, self.partition.leader_id, replica.log_start_offset,
                    log_start, keep_ms)  # fmt: skip
        return keep_ms

    def cut(self, leader: DivergingEpoch) -> bool:
        """Truncate to what is shared with the leader; True when something was removed.

        The new recovery point must be written before anything is appended.
        """
        replica = self.partition.log
        return self._cut_to(decide_cut(replica.epochs, replica.log_end_offset, leader))

    def reset(self, leader: Range) -> bool:
        """Move the log back into the leader's range; True when something was removed."""
        decision = decide_reset(self.partition.log.log_end_offset, leader)
        if decision is None:
            return False
        if decision.is_restart:
            self._begin_at(decision.offset, self._keep_ms(decision.offset))
            return True
        return self._cut_to(decision.offset)

    def start_in_tier(self, history: TierHistory, log_start: Offset) -> None:
        """Start the log where a history in remote storage ends.

        The new recovery point must be written before anything is appended.
        """
        with DirectoryGuard(self._host, self.partition.directory):
            self.partition.log.start_in_tier(history, log_start)
        self._host.log_events.truncated(self.partition)

    def _cut_to(self, offset: Offset) -> bool:
        with DirectoryGuard(self._host, self.partition.directory):
            if not self.partition.log.truncate_to(offset):
                return False
        self._host.log_events.truncated(self.partition)
        return True

    def _begin_at(self, offset: Offset, keep_ms: int = 0) -> None:
        replica = self.partition.log
        with DirectoryGuard(self._host, self.partition.directory):
            replica.truncate_fully_and_start_at(offset, keep_ms=keep_ms)
            if keep_ms:
                replica.keep_segments(keep_ms)
        self._host.log_events.truncated(self.partition)
