"""The leader's append: write a checked batch to the log and notify the waiters.

Every produced batch passes through here, so this module is compiled where possible. The checks,
and everything else of a partition, are in `partition.py`.
"""

from typing import TYPE_CHECKING, Final

from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
    from ottla.protocol.faults import NotEnoughReplicasAfterAppend
    from ottla.protocol.records.batch import BatchHeader
    from ottla.replication.leading.high_watermark import Lag
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

ALL: Final = -1
"""``acks=all``."""


@cython.cclass
class AppendingPartition:
    """The fields of a partition that an append needs. `Partition` initializes every one."""

    directory = cython.declare(object, visibility="public")
    log = cython.declare(object, visibility="public")
    config = cython.declare(object, visibility="public")
    leader_epoch = cython.declare(cython.longlong, visibility="public")
    is_leader = cython.declare(object, visibility="public")
    _host = cython.declare(object, visibility="public")
    _leading = cython.declare(object, visibility="public")
    _wakers = cython.declare(object, visibility="public")
    _replicated = cython.declare(object, visibility="public")

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is rejected for now."""
        return bool(
            self.is_leader and self._leading.is_under_min_isr(self.config.min_insync_replicas)
        )

    def is_answered_at_once(self, required_acks: int) -> bool:
        """Whether a successful append can be acknowledged without waiting."""
        if not self.is_leader or required_acks != ALL:
            return bool(self.is_leader)
        return not self._leading.followers and not self.is_under_min_isr

    def append_checked(
        self, batch: memoryview, offset_delta: int, timestamp: int, now: Millis
    ) -> Offset:
        """Append, as the leader, a batch that `Partition.append` would accept; return its offset.

        The caller has checked that, and that the batch has no producer and keeps its timestamps.
        ``offset_delta`` is that of its last record, ``timestamp`` its largest.

        Raises:
            StorageFailed: the directory is offline now.
        """
        log = self.log
        first: Offset = log.log_end_offset
        try:
            log.append_checked(batch, first + offset_delta, timestamp, self.leader_epoch, now)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        self._appended()
        return first

    def append_next(self, batch: memoryview, header: "BatchHeader", now: Millis) -> Offset:
        """Append the next batch of an idempotent producer, as `append_checked`; return its offset.

        The caller has checked it with `ProducerState.check`, too.

        Raises:
            StorageFailed: the directory is offline now.
        """
        try:
            first: Offset = self.log.append_next(batch, header, self.leader_epoch, now)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        self._appended()
        return first

    def _appended(self) -> None:
        """Sync if that is due, then notify the waiters of what was appended."""
        log = self.log
        if log.log_end_offset - log.recovery_point >= self.config.flush_messages:
            self.flush_if_due()
        if not self._advance():
            self._wakers.wake()

    def flush_if_due(self) -> None:
        """Sync what was appended before it is acknowledged, as ``flush.messages`` requires.

        Followers do so too: their next fetch acknowledges it. Blocks. Raises StorageFailed.
        """
        log = self.log
        if log.log_end_offset - log.recovery_point < self.config.flush_messages:
            return
        try:
            log.flush()
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise

    def _advance(self) -> bool:
        """Advance the high watermark as far as possible; True when it advanced.

        Readers are woken before writers are answered: a consumer waits for the records, the
        producer only for the end of its request.
        """
        log, leading = self.log, self._leading
        new = log.log_end_offset
        if leading.followers:  # without followers, no rule can hold it back
            if leading.is_under_min_isr(self.config.min_insync_replicas):
                return False
            new = leading.high_watermark(new, self._lag(), self._is_eligible)
        if new <= log.high_watermark:
            return False
        log.set_high_watermark(new)
        self._wakers.wake()
        if self._replicated:
            self._replicated.reached(new, self._too_few_after_append())
        return True

    def _lag(self) -> "Lag":
        raise NotImplementedError

    def _is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        raise NotImplementedError

    def _too_few_after_append(self) -> "NotEnoughReplicasAfterAppend | None":
        raise NotImplementedError
