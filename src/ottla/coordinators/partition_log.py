"""A hosted partition as the log of a shard."""

from collections.abc import Callable

from ottla.coordinators.ports import ShardLog, Unsubscribe
from ottla.protocol.faults import Fault
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.appending import ALL
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import Isolation, ReadRequest
from ottla.runtime.ports import File


class PartitionLog:
    """Adapts a `Partition` that this node leads."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read."""
        return self._partition.log.log_start_offset

    @property
    def log_end(self) -> Offset:
        """The offset that the next record gets."""
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        """Everything below it is committed."""
        return self._partition.log.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the topic accepts."""
        return self._partition.config.max_message_bytes

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed at once: no other replica has to be waited for."""
        return self._partition.is_answered_at_once(ALL)

    def append(
        self, batch: bytearray, *, epoch: LeaderEpoch, now: Millis, transaction_version: int = 0
    ) -> Offset:
        """Append with all replicas in sync required; raises as `ShardLog.append`."""
        appended = self._partition.append(
            batch,
            now=now,
            required_acks=ALL,
            from_client=False,
            transaction_version=transaction_version,
            expected_epoch=epoch,
        )
        return Offset(appended.last_offset + 1)

    def append_at_once(
        self, batch: bytearray, records: int, *, epoch: LeaderEpoch, now: Millis
    ) -> Offset | None:
        """Append a plain batch that is committed at once; raises as `ShardLog.append_at_once`."""
        partition = self._partition
        if epoch != partition.leader_epoch or not partition.is_answered_at_once(ALL):
            return None
        config = partition.log.config
        if len(batch) > min(config.max_message_bytes, config.segment_bytes):
            return None
        if config.is_log_append_time:
            return None
        first = partition.append_checked(memoryview(batch), records - 1, now, now)
        return Offset(first + records)

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Return batches up to the log end; raises as `ShardLog.read`."""
        want = ReadRequest(offset, bytes_max, isolation=Isolation.LOG_END)
        found = self._partition.read(want).slice
        file: File = found.file
        return file.pread(found.length, found.position)

    def damaged(self, offset: Offset, fault: Fault) -> Fault:
        """Have stored batches checked at once; return the fault to raise."""
        return self._partition.damaged(offset, fault)

    def on_advanced(self, wake: Callable[[], None]) -> Unsubscribe:
        """Call ``wake`` whenever the high watermark may have moved."""
        return self._partition.on_appended(wake)


def log_opener(partitions: Partitions, topic: str) -> Callable[[int], ShardLog | None]:
    """Return a function that opens the logs of a topic for a runtime."""

    def open_log(index: int) -> ShardLog | None:
        partition = partitions.get(topic, index)
        if partition is None or not partition.is_leader or partition.offline is not None:
            return None
        return PartitionLog(partition)

    return open_log
