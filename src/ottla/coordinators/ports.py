"""What a coordinator needs from the partition that holds its state."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ottla.protocol.faults import Fault
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset

Unsubscribe: TypeAlias = Callable[[], None]


class ShardLog(Protocol):
    """A partition of an internal topic that this node leads."""

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read."""
        ...

    @property
    def log_end(self) -> Offset:
        """The offset that the next record gets."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """Everything below it is committed."""
        ...

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the topic accepts."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed at once: no other replica has to be waited for."""
        ...

    def append(
        self, batch: bytearray, *, epoch: LeaderEpoch, now: Millis, transaction_version: int = 0
    ) -> Offset:
        """Append as the leader of ``epoch``, with acks=all; return the new log end.

        ``transaction_version`` is that of the transaction which a marker ends.

        Raises:
            NotLeader, FencedLeaderEpoch, StorageFailed: this node is no longer the coordinator.
            NotEnoughReplicas, RecordTooLarge, InvalidProducerEpoch, ...: nothing was written.
        """
        ...

    def append_at_once(
        self, batch: bytearray, records: int, *, epoch: LeaderEpoch, now: Millis
    ) -> Offset | None:
        """Append a plain batch of so many records if that commits it; return the new log end.

        The batch has no producer and a valid CRC, and ``now`` is the timestamp of all its records.
        Returns None, with nothing written, where `append` would have to wait or to raise.

        Raises:
            StorageFailed: this node is no longer the coordinator.
        """
        ...

    def read(self, offset: Offset, bytes_max: int) -> Buffer:
        """Return batches from the one that contains ``offset``, up to the log end.

        At least one whole batch, however large; the last may be truncated. Empty at the end.

        Raises:
            OffsetOutOfRange, StorageFailed, NotLeader, CorruptBatch, ReplicaDamaged.
        """
        ...

    def damaged(self, offset: Offset, fault: Fault) -> Fault:
        """Have the stored batches from ``offset`` on checked at once; return the fault to raise.

        For batches that `read` returned and that are corrupt.
        """
        ...

    def on_advanced(self, wake: Callable[[], None]) -> Unsubscribe:
        """Call ``wake`` whenever the high watermark may have moved."""
        ...
