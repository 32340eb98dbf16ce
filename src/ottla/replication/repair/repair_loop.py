"""Repairs damaged replicas with batches from other replicas.

    found      record the damaged range: no reader is sent a byte of it; log one ERROR line
    leave      report the replica's directory to the controller as lost (KIP-858). In one record it
               removes the replica from the ISR, and gives its leadership to another in-sync
               replica. Until the directory is reported again, the controller does not elect the
               replica, and no leader takes it back into the ISR. A replica that is alone in the ISR
               does not leave
    repair     fetch the damaged offsets as a consumer does, from the leader or any other replica,
               check them, and overwrite the damaged bytes; nothing else changes, and the log is
               never shorter than it was
    rejoin     once every batch is valid, report the actual directory to the controller

A crash leaves the damaged range damaged, half written or repaired, and nothing else changed. The
controller still has the replica's directory as lost, and a broker that sees that checks the whole
log before it reports the replica's directory.

If no other replica has a sound copy, the replica rejoins: staying out would not help, and its
other records may be needed. The damaged batches are still never sent.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

import msgspec

from ottla.metadata.topics import DIRECTORY_LOST, PartitionRegistration
from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.types import NO_LEADER, Millis, Offset
from ottla.replication.event_wait import wait_or_timeout
from ottla.replication.fetching.fetcher_loop import BrokerConnection, Connect
from ottla.replication.host import Host
from ottla.replication.partition import Partition
from ottla.replication.repair.repair_fetch import OtherLength, Outcome, UnusableCopy, fetch_batches
from ottla.replication.repair.repair_sources import may_be_elected, order_sources, should_leave_isr
from ottla.replication.repair.restore import ReplicaRestore
from ottla.storage.log.files import OFFSET_MAX
from ottla.storage.log.flushing import PathSync
from ottla.storage.log.inventory import MissingRange
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.batch_check import Cursor, DamagedRange, Part, scrub_step

log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 60_000
# How long the controller may take to remove a replica from the ISR. In-place repair is safe
# without it, too; so after that the repair continues.
LEAVE_ISR_MS_MAX: Final = 10_000
POLL_MS: Final = 50
# A larger range is fetched twice: once to check that it fits, once to be written.
KEPT_BYTES_MAX: Final = 16 << 20


class RepairCounts(msgspec.Struct):
    """Counters since the start."""

    found: int = 0  # damaged ranges
    started: int = 0  # attempts on a partition
    finished: int = 0  # ranges repaired


class _Repair(msgspec.Struct):
    """The repair of a damaged partition. Times are monotonic."""

    due: Millis
    retry_ms: int = RETRY_MS
    is_out: bool = False  # the directory was reported to the controller as lost
    has_no_source: bool = False  # no replica has a sound copy, as far as known


class ReplicaRepair:
    """Service: repairs the reported damage, one partition at a time, until cancelled."""

    name = "replica-repair"

    def __init__(self, host: Host, connect: Connect) -> None:
        self.counts = RepairCounts()
        self._host = host
        self._connect = connect
        self._restore = ReplicaRestore(host, connect)
        self._repairs: dict[Partition, _Repair] = {}
        self._verifying: set[Partition] = set()
        self._changed = asyncio.Event()

    # -- reports of others -------------------------------------------------------

    @property
    def damaged(self) -> list[Partition]:
        """The partitions with known damage that is not repaired."""
        return [each for each in self._repairs if each.log.damaged_ranges]

    def found(self, partition: Partition, segment: Segment, damage: DamagedRange) -> None:
        """Record a damaged range; does nothing if it is known already."""
        if not partition.log.damaged_ranges.add(segment, damage):
            return
        self.counts.found += 1
        log.error(
            "batch damaged partition=%s file=%s position=%d bytes=%d offsets=%d..%d cause=%s "
            "action=%s",
            partition, segment.path, damage.position, damage.end - damage.position,
            damage.offset, damage.offset_end - 1, damage.cause, _action(partition),
        )  # fmt: skip
        self._schedule(partition)

    def found_missing(self, partition: Partition, missing: MissingRange) -> None:
        """Record a range of offsets that the log lacks; does nothing if it is known already."""
        if len(partition.replicas) == 1 or not partition.log.damaged_ranges.add_missing(missing):
            return
        self.counts.found += 1
        log.error("records missing partition=%s file=%s offsets=%d..%d cause=%s action=%s",
                  partition, missing.path, missing.start, missing.end - 1, missing.reason,
                  _action(partition))  # fmt: skip
        self._schedule(partition)

    def opened(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Repair a replica that has lost records before it was opened; it is held until then.

        One that has only lost its end fetches it again from the leader, unless it may lead itself.
        """
        own = self._host.node_id
        missing = partition.log.damaged_ranges.missing
        self.counts.found += len(missing)
        if missing or may_be_elected(own, registration):
            self._hold(partition, registration)

    def created(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Hold a replica whose log was not found, if it may lead: how much it had is not known."""
        if may_be_elected(self._host.node_id, registration):
            partition.log.expect_end(Offset(OFFSET_MAX))
            self._hold(partition, registration)

    def _hold(self, partition: Partition, registration: PartitionRegistration) -> None:
        own = self._host.node_id
        partition.is_held = True
        self._schedule(partition)
        self._repairs[partition].is_out = registration.directory(own) == DIRECTORY_LOST

    def _schedule(self, partition: Partition) -> None:
        self._repairs.setdefault(partition, _Repair(Millis(0))).due = Millis(0)
        self._changed.set()

    def holds_back(self, partition: Partition) -> bool:
        """Whether the controller must not be notified yet of a replica's directory.

        A replica whose directory the controller has as lost, for no reason known here, is checked
        first.
        """
        repair = self._repairs.get(partition)
        is_out = repair is not None and repair.is_out
        if is_out or partition.is_held or partition in self._verifying:
            return True
        at = partition.registration
        is_lost = at is not None and at.directory(self._host.node_id) == DIRECTORY_LOST
        if repair is not None or not is_lost or partition.leader_id < 0:
            return False
        self._verifying.add(partition)
        if self._host.log_events.check(partition, partial(self._verified, partition)):
            return True
        self._verifying.discard(partition)
        return False

    def _verified(self, partition: Partition) -> None:
        self._verifying.discard(partition)
        repair = self._repairs.get(partition)
        if repair is not None and partition.log.damaged_ranges:
            repair.is_out = True
        else:
            self._host.log_events.usable(partition)

    # -- the loop --------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Repair until cancelled."""
        ready()
        while True:
            await self._wait()
            now = self._host.clock.monotonic()
            for partition, repair in list(self._repairs.items()):
                if repair.due <= now:
                    await self._try_repair(partition, repair)

    async def _wait(self) -> None:
        self._changed.clear()
        if not self._repairs:
            await self._changed.wait()
            return
        due = min(repair.due for repair in self._repairs.values())
        wait_ms = due - self._host.clock.monotonic()
        if wait_ms <= 0:
            return
        await wait_or_timeout(self._changed, wait_ms)

    async def _try_repair(self, partition: Partition, repair: _Repair) -> None:
        """Try to repair a partition; finish its repair, or schedule another attempt."""
        if partition.is_closed or partition.offline is not None:
            del self._repairs[partition]
            return
        self.counts.started += 1
        try:
            is_sound = await self._repair(partition, repair)
        except StorageFailed:
            is_sound = False  # its directory is offline now
        if is_sound:
            del self._repairs[partition]
            self._rejoin(partition, repair)
            self._host.log_events.repaired(partition)
            log.info("replica repaired partition=%s", partition)
            return
        if (partition.leader_id < 0 and not partition.is_held) or repair.has_no_source:
            # There is no leader, or no sound copy: the sound records here may be needed.
            self._rejoin(partition, repair)
        repair.due = Millis(self._host.clock.monotonic() + repair.retry_ms)
        repair.retry_ms = min(repair.retry_ms * 2, RETRY_MS_MAX)

    async def _repair(self, partition: Partition, repair: _Repair) -> bool:
        """Repair every damaged range of a partition; False when one is left."""
        await self._leave_isr(partition, repair)
        ranges = partition.log.damaged_ranges
        outcomes = [await self._repair_one(partition, *each) for each in ranges]
        outcomes += [await self._restore.restore(partition, each) for each in ranges.missing]
        is_alone = partition.leader_id in (self._host.node_id, NO_LEADER)
        if partition.is_held and partition.log.is_end_lost:
            restore = self._restore_end if is_alone else self._restore.measure_end
            outcomes.append(await restore(partition))
        repair.has_no_source = Outcome.NO_SOUND_COPY in outcomes
        partition.log.forget_removed_damage()
        if Outcome.NOT_REACHED not in outcomes and partition.is_held:
            self._host.log_events.release(partition)
        is_whole = not partition.log.damaged_ranges and not partition.log.is_end_lost
        return is_whole and not partition.is_held

    async def _restore_end(self, partition: Partition) -> Outcome:
        """Ask the other replicas for the end of the log; go on without it if none has it."""
        outcome = await self._restore.restore_end(partition)
        if outcome is Outcome.GONE:
            log.error("records lost partition=%s offsets=%d on cause=no replica has them",
                      partition, partition.log.log_end_offset)  # fmt: skip
            partition.log.accept_end()
        elif outcome is Outcome.NOT_REACHED:
            log.error("partition has no leader partition=%s cause=this replica lost its records "
                      "from offset %d on action=start a broker of %s, which may have them",
                      partition, partition.log.log_end_offset, partition.replicas)  # fmt: skip
        return outcome

    # -- the ISR ---------------------------------------------------------------

    async def _leave_isr(self, partition: Partition, repair: _Repair) -> None:
        """Leave the ISR and the leadership if possible; wait until it has happened."""
        host = self._host
        if repair.has_no_source or not self._may_leave(partition):
            return
        if not repair.is_out:
            repair.is_out = True
            host.log_events.lost(partition)
        until = host.clock.monotonic() + LEAVE_ISR_MS_MAX
        while host.clock.monotonic() < until and self._may_leave(partition):
            if host.node_id not in partition.isr and partition.leader_id != host.node_id:
                return
            await asyncio.sleep(POLL_MS / 1000)

    def _may_leave(self, partition: Partition) -> bool:
        host = self._host
        return should_leave_isr(host.node_id, partition.leader_id, partition.isr, host.is_alive)

    def _rejoin(self, partition: Partition, repair: _Repair) -> None:
        if repair.is_out:
            repair.is_out = False
            self._host.log_events.usable(partition)

    # -- one damaged range -------------------------------------------------------

    async def _repair_one(
        self, partition: Partition, segment: Segment, damage: DamagedRange
    ) -> Outcome:
        host = self._host
        sources = order_sources(
            host.node_id, partition.leader_id, partition.isr, partition.replicas, host.is_alive
        )
        others = len(partition.replicas) - 1
        outcome = Outcome.NO_SOUND_COPY if len(sources) == others else Outcome.NOT_REACHED
        for broker in sources:
            try:
                is_there = await self._repair_from(broker, partition, segment, damage)
            except StorageFailed:
                raise
            except OtherLength as fault:
                self._replace_segment(partition, segment, damage)
                log.warning("segment is fetched whole partition=%s file=%s reason=%s",
                            partition, segment.path, fault)  # fmt: skip
                return Outcome.GONE
            except (CorruptBatch, UnsupportedMagic, UnusableCopy) as fault:
                log.warning("replica has no usable copy partition=%s broker=%d reason=%s",
                            partition, broker, fault)  # fmt: skip
            except (OSError, Fault) as error:
                outcome = Outcome.NOT_REACHED
                log.info("replica does not answer partition=%s broker=%d reason=%s",
                         partition, broker, error)  # fmt: skip
            else:
                return Outcome.REPAIRED if is_there else Outcome.GONE
        return outcome

    def _replace_segment(
        self, partition: Partition, segment: Segment, damage: DamagedRange
    ) -> None:
        """Have all of a segment restored whose damaged batches have another length elsewhere."""
        replica = partition.log
        if not self._is_known(partition, segment, damage):
            return
        if segment is replica.segments[-1]:
            replica.roll()
        bases = (each.base_offset for each in replica.segments)
        end = min(base for base in bases if base > segment.base_offset)
        replica.damaged_ranges.remove(segment, damage)
        start = max(segment.base_offset, replica.log_start_offset)
        missing = MissingRange(start, end, segment.path, damage.cause)
        replica.damaged_ranges.add_missing(missing)

    async def _repair_from(
        self, broker: int, partition: Partition, segment: Segment, damage: DamagedRange
    ) -> bool:
        """Repair a range from one replica; False when it is no longer part of the log.

        Raises:
            CorruptBatch, UnsupportedMagic, UnusableCopy: the replica has no copy that fits.
            OSError, Fault: it could not be asked. StorageFailed: the disk here failed.
        """
        connection = await self._connect(broker)
        try:
            kept = await self._fetch_if_fit(connection, partition, damage)
            if kept is not None and self._is_same(segment, damage, kept):
                partition.log.damaged_ranges.dismiss(segment, damage)
                log.warning("no damage: another replica has the same bytes partition=%s file=%s "
                            "position=%d", partition, segment.path, damage.position)  # fmt: skip
                return True
            position = damage.position
            async for batch in (
                _batches(connection, partition, damage) if kept is None else _each(kept)
            ):
                if not self._write(partition, segment, damage, position, batch):
                    return False
                position += len(batch)
        finally:
            await connection.close()
        return await self._check(partition, segment, damage)

    async def _fetch_if_fit(
        self, connection: BrokerConnection, partition: Partition, damage: DamagedRange
    ) -> list[bytes] | None:
        """Fetch the range and check its size; return it unless it is too large to be kept."""
        if damage.offset < partition.log.log_start_offset:
            raise OtherLength("no replica serves the bytes before the start of the log")
        kept, size = [], 0
        async for batch in _batches(connection, partition, damage):
            size += len(batch)
            if size <= KEPT_BYTES_MAX:
                kept.append(batch)
        if size != damage.end - damage.position:
            raise OtherLength(f"{size} bytes instead of {damage.end - damage.position}")
        return kept if size <= KEPT_BYTES_MAX else None

    def _is_same(self, segment: Segment, damage: DamagedRange, batches: list[bytes]) -> bool:
        """Whether the bytes here are those of another replica, whose CRCs are valid."""
        try:
            data = segment.file.pread(damage.end - damage.position, damage.position)
        except OSError:
            return False
        return data == b"".join(batches)

    def _write(
        self,
        partition: Partition,
        segment: Segment,
        damage: DamagedRange,
        position: int,
        data: bytes,
    ) -> bool:
        """Overwrite damaged bytes with sound batches; False when the range is gone."""
        if not self._is_known(partition, segment, damage) or position + len(data) > damage.end:
            return False
        try:
            partition.log.patch(segment, position, data)
        except StorageFailed as fault:
            self._host.storage_failed(partition.directory, fault.reason)
            raise
        return True

    def _is_known(self, partition: Partition, segment: Segment, damage: DamagedRange) -> bool:
        if partition.is_closed or partition.offline is not None:
            return False
        partition.log.forget_removed_damage()
        return (segment, damage) in list(partition.log.damaged_ranges)

    async def _check(self, partition: Partition, segment: Segment, damage: DamagedRange) -> bool:
        """Make the repair durable and check it; then the range may be read again."""
        host = self._host
        disk = host.ports.disk
        await host.directories.commit(partition.directory, [PathSync(disk, segment.path)])
        cursor: Cursor | None = Cursor(damage.position, damage.offset)
        part = Part(damage.end, damage.offset_end)
        while cursor is not None:
            step = partial(scrub_step, disk, segment.path, cursor, part)
            try:
                window = await host.ports.worker.run(step)
            except FileNotFoundError:
                return False
            if window.damage is not None:
                raise UnusableCopy(f"still damaged: {window.damage.cause}")
            cursor = window.cursor
        if not self._is_known(partition, segment, damage):
            return False
        partition.log.damaged_ranges.remove(segment, damage)
        segment.recheck_indexes()
        self.counts.finished += 1
        partition.wake_readers()
        log.info("batch repaired partition=%s file=%s offsets=%d..%d", partition, segment.path,
                 damage.offset, damage.offset_end - 1)  # fmt: skip
        return True


def _batches(
    connection: BrokerConnection, partition: Partition, damage: DamagedRange
) -> AsyncIterator[bytes]:
    """Yield sound batches of the damaged offsets, in the order of their offsets."""
    return fetch_batches(connection, partition, damage.offset, damage.offset_end)


async def _each(batches: list[bytes]) -> AsyncIterator[bytes]:
    for batch in batches:
        yield batch


def _action(partition: Partition) -> str:
    """Return the action for the operator, in one sentence."""
    if len(partition.replicas) > 1:
        return "repair from another replica"
    return (
        "none: this is the only replica; the damaged batch is not served. "
        "Run `ottla log verify` and restore the topic from a backup"
    )
