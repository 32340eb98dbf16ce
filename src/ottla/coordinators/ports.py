"""What a coordinator needs of the partition that its state is kept in."""

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
        """Below it everything is committed."""
        ...

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch the topic takes."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether what is appended now is committed by that: there is nobody to wait for."""
        ...

    def append(
        self, batch: bytearray, *, epoch: LeaderEpoch, now: Millis, transaction_version: int = 0
    ) -> Offset:
        """Append as the leader of ``epoch``, replicas in sync required; return the new log end.

        ``transaction_version`` is that of the transaction which a marker ends.

        Raises:
            NotLeader, FencedLeaderEpoch, StorageFailed: this node coordinates no longer.
            NotEnoughReplicas, RecordTooLarge, InvalidProducerEpoch, ...: nothing was written.
        """
        ...

    def append_at_once(
        self, batch: bytearray, records: int, *, epoch: LeaderEpoch, now: Millis
    ) -> Offset | None:
        """Append a plain batch of so many records if it is committed by that; return the new end.

        It has no producer, its CRC is right, and ``now`` is the time of all its records. None
        where `append` has to wait, or to say why not: nothing was written then.

        Raises:
            StorageFailed: this node coordinates no longer.
        """
        ...

    def read(self, offset: Offset, bytes_max: int) -> Buffer:
        """Return batches from the one that holds ``offset``, up to the log end.

        At least one whole batch, however large; the last may be cut off. Empty at the end.

        Raises:
            OffsetOutOfRange, StorageFailed, NotLeader, CorruptBatch, ReplicaDamaged.
        """
        ...

    def damaged(self, offset: Offset, fault: Fault) -> Fault:
        """Have the stored batches from ``offset`` on checked at once; return the fault to raise.

        For batches that `read` returned and that turned out to be damaged.
        """
        ...

    def on_advanced(self, wake: Callable[[], None]) -> Unsubscribe:
        """Call ``wake`` whenever the high watermark may have moved."""
        ...
