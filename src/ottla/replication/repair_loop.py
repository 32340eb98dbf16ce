"""ReplicaRepair replicas with damaged batches from other replicas.

    found      the damage is remembered: nobody is sent a byte of it; one ERROR line
    step out   the controller is told that the replica's directory is lost (KIP-858). In one
               record it takes the replica out of the ISR, and gives its leadership to another
               in-sync replica. Until it is told otherwise it will not elect the replica, and no
               leader of ours takes it back into the ISR. A replica that is alone in the ISR stays
    repair     the damaged offsets are fetched as a consumer does, from the leader or any other
               replica, checked, and written over the damaged bytes; nothing else is touched, and
               the log is never shorter than it was
    step in    once every batch checks, the controller is told the directory as it is

A crash leaves the damaged range damaged, half written or repaired, and nothing else changed. The
controller still has the replica's directory as lost, and a broker that finds that checks the whole
log before it says where the replica is.

Where no other replica has a sound copy, the replica steps in again: being out would not help, and
what it has beside the damage may be needed. The damaged batch is still never sent.
"""

import asyncio
import enum
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

import msgspec

from ottla.metadata.topics import DIRECTORY_LOST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.types import Millis, Offset
from ottla.replication.fetcher_loop import BrokerConnection, Connect
from ottla.replication.host import Host
from ottla.replication.partition import Partition
from ottla.replication.repair_sources import order_sources, should_leave_isr, sound_batches
from ottla.storage.flushing import PathSync
from ottla.storage.scrub import Cursor, DamagedRange, Part, scrub_step
from ottla.storage.segment import Segment

log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 60_000
# How long the controller may take to carry out that a replica leaves. In-place repair is safe
# without it, too; so after that the repair goes on.
STEP_OUT_MS_MAX: Final = 10_000
LOOK_MS: Final = 50
FETCH_BYTES: Final = 1 << 20
# A larger range is fetched twice: once to see that it fits, once to be written.
KEPT_BYTES_MAX: Final = 16 << 20
TIMEOUT_MS: Final = 30_000


class Outcome(enum.Enum):
    """What came of an attempt to repair one damage."""

    REPAIRED = "repaired"
    GONE = "the damaged range is no part of the log any more"
    NO_SOUND_COPY = "every replica was asked and none has a sound copy"
    NOT_REACHED = "a replica could not be asked"


class RepairCounts(msgspec.Struct):
    """Since the start."""

    found: int = 0  # damaged ranges
    started: int = 0  # attempts on a partition
    finished: int = 0  # ranges repaired


class _Case(msgspec.Struct):
    """A damaged partition. Times are monotonic."""

    due: Millis
    retry_ms: int = RETRY_MS
    is_out: bool = False  # the controller was told that the directory is lost
    is_hopeless: bool = False  # no replica has a sound copy, as far as known


class UnusableCopy(Fault):
    """A replica that has the offsets and whose bytes cannot take the place of the damaged ones."""

    code = ErrorCode.CORRUPT_MESSAGE


class ReplicaRepair:
    """Service: repairs what it is told of, one partition after the other, until cancelled.

    ``verify`` has a whole log checked and calls back after; None where there is no scrubber.
    """

    name = "replica-repair"

    def __init__(self, host: Host, dial: Connect) -> None:
        self.counts = RepairCounts()
        self.verify: Callable[[Partition, Callable[[], None]], None] | None = None
        self._host = host
        self._dial = dial
        self._cases: dict[Partition, _Case] = {}
        self._verifying: set[Partition] = set()
        self._changed = asyncio.Event()

    # -- what others tell ------------------------------------------------------

    @property
    def damaged(self) -> list[Partition]:
        """The partitions with a damage that is known and not repaired."""
        return [each for each in self._cases if each.log.damaged_ranges]

    def found(self, partition: Partition, segment: Segment, damage: DamagedRange) -> None:
        """Take in a damage; known already, nothing happens."""
        if not partition.log.damaged_ranges.add(segment, damage):
            return
        self.counts.found += 1
        log.error(
            "batch damaged partition=%s file=%s position=%d bytes=%d offsets=%d..%d cause=%s "
            "action=%s",
            partition, segment.path, damage.position, damage.end - damage.position,
            damage.offset, damage.offset_end - 1, damage.cause, _action(partition),
        )  # fmt: skip
        self._cases.setdefault(partition, _Case(Millis(0))).due = Millis(0)
        self._changed.set()

    def holds_back(self, partition: Partition) -> bool:
        """Say whether the controller must not be told yet where a replica is.

        One whose directory the controller has as lost, for no reason known here, is checked first.
        """
        case = self._cases.get(partition)
        if (case is not None and case.is_out) or partition in self._verifying:
            return True
        at = partition.registration
        is_lost = at is not None and at.directory(self._host.node_id) == DIRECTORY_LOST
        if case is not None or not is_lost or self.verify is None or partition.leader_id < 0:
            return False
        self._verifying.add(partition)
        self.verify(partition, partial(self._verified, partition))
        return True

    def _verified(self, partition: Partition) -> None:
        self._verifying.discard(partition)
        case = self._cases.get(partition)
        if case is not None and partition.log.damaged_ranges:
            case.is_out = True
        else:
            self._host.report_placed(partition)

    # -- the loop --------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Repair until cancelled."""
        ready()
        while True:
            await self._wait()
            now = self._host.clock.monotonic()
            for partition, case in list(self._cases.items()):
                if case.due <= now:
                    await self._attend(partition, case)

    async def _wait(self) -> None:
        self._changed.clear()
        if not self._cases:
            await self._changed.wait()
            return
        due = min(case.due for case in self._cases.values())
        wait_ms = due - self._host.clock.monotonic()
        if wait_ms <= 0:
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _attend(self, partition: Partition, case: _Case) -> None:
        """Try to repair a partition; end its case, or say when to try again."""
        if partition.is_closed or partition.offline is not None:
            del self._cases[partition]
            return
        self.counts.started += 1
        try:
            is_sound = await self._repair(partition, case)
        except StorageFailed:
            is_sound = False  # its directory is offline now
        if is_sound:
            del self._cases[partition]
            self._step_in(partition, case)
            self._host.repaired(partition)
            log.info("replica repaired partition=%s", partition)
            return
        if partition.leader_id < 0 or case.is_hopeless:
            # Nobody leads, or nobody can help: what is sound here may be needed.
            self._step_in(partition, case)
        case.due = Millis(self._host.clock.monotonic() + case.retry_ms)
        case.retry_ms = min(case.retry_ms * 2, RETRY_MS_MAX)

    async def _repair(self, partition: Partition, case: _Case) -> bool:
        """Repair every damage of a partition; False when one is left."""
        await self._step_out(partition, case)
        outcomes = [
            await self._repair_one(partition, segment, damage)
            for segment, damage in partition.log.damaged_ranges
        ]
        case.is_hopeless = Outcome.NO_SOUND_COPY in outcomes
        partition.log.forget_removed_damage()
        return not partition.log.damaged_ranges

    # -- the ISR ---------------------------------------------------------------

    async def _step_out(self, partition: Partition, case: _Case) -> None:
        """Leave the ISR and the leadership, if that is possible; wait until it has happened."""
        host = self._host
        if case.is_hopeless or not self._may_leave(partition):
            return
        if not case.is_out:
            case.is_out = True
            host.report_lost(partition)
        until = host.clock.monotonic() + STEP_OUT_MS_MAX
        while host.clock.monotonic() < until and self._may_leave(partition):
            if host.node_id not in partition.isr and not partition.is_leader:
                return
            await asyncio.sleep(LOOK_MS / 1000)

    def _may_leave(self, partition: Partition) -> bool:
        host = self._host
        return should_leave_isr(host.node_id, partition.leader_id, partition.isr, host.is_alive)

    def _step_in(self, partition: Partition, case: _Case) -> None:
        if case.is_out:
            case.is_out = False
            self._host.report_placed(partition)

    # -- one damage ------------------------------------------------------------

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
            except (CorruptBatch, UnsupportedMagic, UnusableCopy) as fault:
                log.warning("replica cannot help partition=%s broker=%d reason=%s",
                            partition, broker, fault)  # fmt: skip
            except (OSError, Fault) as error:
                outcome = Outcome.NOT_REACHED
                log.info("replica does not answer partition=%s broker=%d reason=%s",
                         partition, broker, error)  # fmt: skip
            else:
                return Outcome.REPAIRED if is_there else Outcome.GONE
        return outcome

    async def _repair_from(
        self, broker: int, partition: Partition, segment: Segment, damage: DamagedRange
    ) -> bool:
        """Repair a damage from one replica; False when it is no part of the log any more.

        Raises:
            CorruptBatch, UnsupportedMagic, UnusableCopy: the replica has no copy that fits.
            OSError, Fault: it could not be asked. StorageFailed: the disk here failed.
        """
        line = await self._dial(broker)
        try:
            kept = await self._fetch_if_fit(line, partition, damage)
            if kept is not None and self._is_same(segment, damage, kept):
                partition.log.damaged_ranges.dismiss(segment, damage)
                log.warning("no damage: another replica has the same bytes partition=%s file=%s "
                            "position=%d", partition, segment.path, damage.position)  # fmt: skip
                return True
            position = damage.position
            async for batch in (
                self._fetch(line, partition, damage) if kept is None else _each(kept)
            ):
                if not self._write(partition, segment, damage, position, batch):
                    return False
                position += len(batch)
        finally:
            await line.close()
        return await self._check(partition, segment, damage)

    async def _fetch_if_fit(
        self, line: BrokerConnection, partition: Partition, damage: DamagedRange
    ) -> list[bytes] | None:
        """Fetch the range and see that it fits; return it unless it is too large to be kept."""
        kept, size = [], 0
        async for batch in self._fetch(line, partition, damage):
            size += len(batch)
            if size <= KEPT_BYTES_MAX:
                kept.append(batch)
        if size != damage.end - damage.position:
            raise UnusableCopy(f"{size} bytes for {damage.end - damage.position}")
        return kept if size <= KEPT_BYTES_MAX else None

    def _is_same(self, segment: Segment, damage: DamagedRange, batches: list[bytes]) -> bool:
        """Say whether the bytes here are those of another replica, whose CRCs are right."""
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
        """Write sound batches over damaged bytes; False when those are not there any more."""
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
        """Make the repair durable and read it back; then the range may be read again."""
        host = self._host
        disk = host.ports.disk
        await host.commit(partition.directory, [PathSync(disk, segment.path)])
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

    # -- other replicas --------------------------------------------------------

    async def _fetch(
        self, line: BrokerConnection, partition: Partition, damage: DamagedRange
    ) -> AsyncIterator[bytes]:
        """Yield sound batches of the damaged offsets.

        Raises:
            CorruptBatch, UnsupportedMagic, UnusableCopy: the replica has no sound copy.
        """
        offset, is_last = damage.offset, False
        while not is_last:
            records = await self._fetch_at(line, partition, offset)
            piece = sound_batches(records, offset, damage.offset_end)
            if not piece.batches and not piece.is_last:
                raise UnusableCopy(f"nothing at offset {offset}")
            for batch in piece.batches:
                yield bytes(batch)
            offset, is_last = piece.expected, piece.is_last

    async def _fetch_at(
        self, line: BrokerConnection, partition: Partition, offset: Offset
    ) -> bytes:
        """Fetch as a consumer, which any replica answers and no leader counts as progress."""
        asked = FetchPartition(
            partition=partition.index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        topic = FetchTopic(partition.topic, partition.topic_id, [asked])
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=[topic]
        )
        response = await line.send(request, timeout_ms=TIMEOUT_MS)
        assert isinstance(response, FetchResponse)
        for row in (each for topic in response.responses for each in topic.partitions):
            error = ErrorCode(row.error_code)
            if error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise UnusableCopy(f"offset {offset}: {error.name}")
            if error is not ErrorCode.NONE:
                raise ReplicaNotAnswering(f"offset {offset}: {error.name}")
            return bytes(row.records or b"")
        raise ReplicaNotAnswering(f"offset {offset}: no answer")


class ReplicaNotAnswering(Fault):
    """A replica that cannot say now what it has; to be asked again."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


async def _each(batches: list[bytes]) -> AsyncIterator[bytes]:
    for batch in batches:
        yield batch


def _action(partition: Partition) -> str:
    """Return what an operator should know, in one word or sentence."""
    if len(partition.replicas) > 1:
        return "repair from another replica"
    return (
        "none: this is the only replica; the damaged batch is not served. "
        "Run `ottla log verify` and restore the topic from a backup"
    )
