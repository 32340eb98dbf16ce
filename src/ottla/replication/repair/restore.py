"""Restores what a replica has lost from other replicas: missing ranges, and the end of its log.

range    fetch its batches from the others' log start on, write them to segments beside the
         log, sync them, and put them in place of what is left of the range. What no other
         replica has any more was deleted: the log goes on without it
end      only of a replica that would lead: append what the others have. Otherwise followers
         would truncate records that were acknowledged
"""

import logging
from typing import NamedTuple

from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import NO_EPOCH, Offset
from ottla.replication.fetching.fetcher_loop import LATEST, BrokerConnection, Connect
from ottla.replication.host import Host
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import CONSUMER, DEBUGGER
from ottla.replication.repair.repair_fetch import (
    Outcome,
    ReplicaNotAnswering,
    UnusableCopy,
    fetch_batches,
    fetch_offset,
)
from ottla.replication.repair.repair_sources import order_sources
from ottla.storage.log.inventory import MissingRange
from ottla.storage.log.range_restore import RangeRestore

log = logging.getLogger(__name__)


class _Source(NamedTuple):
    """A replica to restore from, and how to ask it."""

    broker: int
    replica_id: int
    is_leader: bool


class ReplicaRestore:
    """Restores one range or end at a time."""

    def __init__(self, host: Host, connect: Connect) -> None:
        self._host = host
        self._connect = connect

    def _sources(self, partition: Partition) -> list[_Source]:
        """Return the live replicas; without another leader they are asked up to their ends."""
        host, leader = self._host, partition.leader_id
        brokers = order_sources(
            host.node_id, leader, partition.isr, partition.replicas, host.is_alive
        )
        has_leader = leader >= 0 and leader != host.node_id
        replica_id = CONSUMER if has_leader else DEBUGGER
        return [_Source(each, replica_id, has_leader and each == leader) for each in brokers]

    # -- a missing range -----------------------------------------------------------

    async def restore(self, partition: Partition, missing: MissingRange) -> Outcome:
        """Restore a missing range; GONE if no other replica has records there any more.

        Raises:
            StorageFailed: the disk here failed, and the directory is offline.
        """
        sources = self._sources(partition)
        is_gone = bool(sources)
        outcome = Outcome.NO_SOUND_COPY
        if len(sources) < len(partition.replicas) - 1:
            outcome = Outcome.NOT_REACHED
        for source in sources:
            try:
                if await self._restore_from(source, partition, missing):
                    return Outcome.REPAIRED
            except StorageFailed:
                raise
            except (CorruptBatch, UnsupportedMagic, UnusableCopy) as fault:
                is_gone = False
                log.warning("replica has no usable copy partition=%s broker=%d reason=%s",
                            partition, source.broker, fault)  # fmt: skip
            except (OSError, Fault) as error:
                is_gone = False
                outcome = Outcome.NOT_REACHED
                log.info("replica does not answer partition=%s broker=%d reason=%s",
                         partition, source.broker, error)  # fmt: skip
            else:
                if source.is_leader:
                    is_gone = True
                    break
        if not is_gone:
            return outcome
        self._give_up(partition, missing)
        return Outcome.GONE

    async def _restore_from(
        self, source: _Source, partition: Partition, missing: MissingRange
    ) -> bool:
        """Restore a range from one replica; False if it has no records there."""
        connection = await self._connect(source.broker)
        try:
            start = max(missing.start, await fetch_offset(connection, partition))
            if start >= missing.end:
                return False
            restore = RangeRestore(self._host.ports.disk, partition.log, missing, start)
            try:
                return await self._copy(connection, source, partition, restore, start)
            except OSError as error:
                if not isinstance(error, ConnectionError):
                    self._check_disk(partition, error)
                raise
            finally:
                restore.discard()
        finally:
            await connection.close()

    async def _copy(
        self,
        connection: BrokerConnection,
        source: _Source,
        partition: Partition,
        restore: RangeRestore,
        start: Offset,
    ) -> bool:
        """Copy the batches of a range and put them in place; False if there are none."""
        missing, now, count = restore.missing, self._host.clock.now(), 0
        # The log may start within a batch: then nothing before that batch is left.
        is_first = missing.start <= partition.log.log_start_offset
        async for batch in fetch_batches(
            connection,
            partition,
            start,
            missing.end,
            source.replica_id,
            base_min=Offset(0) if is_first else missing.start,
        ):
            restore.add(batch, read_header(batch), now)
            count += 1
        if not count:
            return False
        await self._host.directories.commit(partition.directory, restore.seal())
        if not self._is_current(partition, missing):
            raise ReplicaNotAnswering("the log has changed meanwhile")
        restore.finish()
        self._advance_start(partition, missing, start)
        log.info("missing records restored partition=%s offsets=%d..%d broker=%d",
                 partition, start, missing.end - 1, source.broker)  # fmt: skip
        return True

    def _check_disk(self, partition: Partition, error: OSError) -> None:
        """Take the directory offline if it was the disk that failed, not the network."""
        if getattr(error, "filename", None) is not None:
            self._host.storage_failed(partition.directory, str(error))
            raise StorageFailed(partition.directory.path, str(error)) from error

    def _is_current(self, partition: Partition, missing: MissingRange) -> bool:
        if partition.is_closed or partition.offline is not None:
            return False
        return missing in partition.log.damaged_ranges.missing

    def _give_up(self, partition: Partition, missing: MissingRange) -> None:
        """Go on without a range that no replica has: it was deleted or compacted away."""
        if not self._is_current(partition, missing):
            return
        partition.log.restore(missing, [])
        self._advance_start(partition, missing, missing.end)
        log.info("missing records are gone everywhere partition=%s offsets=%d..%d",
                 partition, missing.start, missing.end - 1)  # fmt: skip

    def _advance_start(self, partition: Partition, missing: MissingRange, start: Offset) -> None:
        """Begin the log at ``start`` if nothing before it is left."""
        replica = partition.log
        if missing.start <= replica.log_start_offset < start <= replica.high_watermark:
            replica.advance_log_start(start)

    # -- the end -----------------------------------------------------------------

    async def restore_end(self, partition: Partition) -> Outcome:
        """Append what other replicas have after the log's end; GONE if that is nothing.

        Only up to the end that the log once had: more was never acknowledged by this replica.
        """
        sources = self._sources(partition)
        answered = 0
        for source in sources:
            try:
                await self._append_from(source, partition)
                answered += 1
            except StorageFailed:
                raise
            except (OSError, Fault) as error:
                log.info("replica does not answer partition=%s broker=%d reason=%s",
                         partition, source.broker, error)  # fmt: skip
        is_only = len(partition.replicas) == 1  # an operator has reassigned the partition to it
        if answered < len(sources) or not (answered or is_only):
            return Outcome.NOT_REACHED
        return Outcome.GONE if partition.log.is_end_lost else Outcome.REPAIRED

    async def measure_end(self, partition: Partition) -> Outcome:
        """Ask the leader how long a log must be that may have been as long as the leader's."""
        replica = partition.log
        try:
            connection = await self._connect(partition.leader_id)
            try:
                end = await fetch_offset(connection, partition, LATEST)
            finally:
                await connection.close()
        except (OSError, Fault) as error:
            log.info("leader does not answer partition=%s broker=%d reason=%s",
                     partition, partition.leader_id, error)  # fmt: skip
            return Outcome.NOT_REACHED
        replica.expect_end(min(end, replica.lost_end))
        return Outcome.REPAIRED

    async def _append_from(self, source: _Source, partition: Partition) -> None:
        connection = await self._connect(source.broker)
        try:
            replica = partition.log
            end = min(await fetch_offset(connection, partition, LATEST), replica.lost_end)
            if replica.log_end_offset >= end:
                return
            async for batch in fetch_batches(
                connection, partition, replica.log_end_offset, end, DEBUGGER
            ):
                latest = replica.epochs.latest_epoch
                if read_header(batch).leader_epoch < (NO_EPOCH if latest is None else latest):
                    raise UnusableCopy("its records are of an older leader epoch")
                if partition.is_closed or not partition.is_held:
                    return
                replica.append_at(batch, now=self._host.clock.now())
        except StorageFailed as fault:
            self._host.storage_failed(partition.directory, fault.reason)
            raise
        finally:
            await connection.close()
